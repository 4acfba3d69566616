"""Leftovers of killed runs go; everything else stays."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from formats import artifacts
from formats.errors import ArtifactError
from stages.clean import find, remove
from stages.reporting import Silent
from tests.synthetic import lessons, write_signatures


class Heard(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)

    warn = message


def dead() -> int:
    """A process number that nobody has any more."""
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
    return int(done.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Every kind of leftover, and things that look alike."""
    signature = lessons([20])[0]
    for name in ("s.zarr", "s.zarr.old", "lost.zarr.old", "s.zarr.partial"):
        write_signatures(tmp_path / name, signature)
    (tmp_path / "allocation.partial").mkdir()
    (tmp_path / "allocation.partial" / "rank-00000.jsonl").write_text("")
    (tmp_path / "s.zarr.work").mkdir()
    (tmp_path / "s.zarr.work" / "job.json").write_text("{}")
    (tmp_path / "s.zarr.lock").write_text(f"process {dead()} on here (cluster-cli score)")
    (tmp_path / f".s.jsonl.{dead()}.tmp").write_text("half")
    # Not ours, or still needed:
    (tmp_path / f".s.jsonl.{os.getpid()}.tmp").write_text("being written")
    (tmp_path / "poetry.lock").write_text("# This file is generated")
    (tmp_path / "notes.old").write_text("mine")
    (tmp_path / "life.work").mkdir()
    (tmp_path / "life.work" / "diary.txt").write_text("mine")
    (tmp_path / "score.partial").write_text("mine")
    return tmp_path


LEFT = {
    "s.zarr.old": "the output before the last one",
    "s.zarr.partial": "half-built output",
    "allocation.partial": "half-built output",
    "s.zarr.work": "work folder of a launch",
    "s.zarr.lock": "lock that nobody holds",
}


def test_leftovers_are_found_and_removed_and_nothing_else(folder: Path) -> None:
    everything = {path.name for path in folder.iterdir()}
    heard = Heard()
    found = find(folder, heard)
    temporary = next(each for each in found if each.path.suffix == ".tmp")
    assert (temporary.meaning, temporary.size) == ("half-written file", 4)
    named = {each.path.name: each.meaning for each in found if each is not temporary}
    assert named == LEFT
    assert heard.said == [
        f"{folder / 'lost.zarr.old'} is the last good lost.zarr; rename it to bring it back"
    ]
    remove(found)
    gone = everything - {path.name for path in folder.iterdir()}
    assert gone == set(LEFT) | {temporary.path.name}
    assert find(folder) == []


def test_what_a_living_process_holds_stays(folder: Path) -> None:
    heard = Heard()
    with open(folder / "s.zarr.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        names = {each.path.name for each in find(folder, heard) if each.path.suffix != ".tmp"}
    assert names == {"allocation.partial"}
    assert heard.said[1:] == [
        f"{folder / name} is in use" for name in ("s.zarr.old", "s.zarr.partial", "s.zarr.work")
    ]


def test_a_killed_writers_lock_is_found(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from formats import artifacts\n"
        "with artifacts.locked(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = Path(__file__).resolve().parents[2]
    output = tmp_path / "ünïcode out.zarr"
    subprocess.run([sys.executable, "-c", program, output], cwd=root, check=False)
    (leftover,) = find(tmp_path)
    assert leftover.path.name == "ünïcode out.zarr.lock"
    remove([leftover])
    with artifacts.locked(output):
        assert find(tmp_path) == []


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as error:
        find(tmp_path / "nothing")
    assert str(error.value) == f"cannot read {tmp_path / 'nothing'}: No such file or directory"
