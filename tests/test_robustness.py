"""Pipes that close, full disks, folders one cannot write to, links, and paths from elsewhere."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from formats import artifacts
from tests import prepared
from tests.synthetic import write_clusters

COMMAND = f"{sys.executable} -m cluster_cli"
# Each stage with another setting than the good output was made with.
AGAIN = {
    "score": "score data.jsonl -m model --rank 4 --dims 64 -o work/signatures.zarr",
    "cluster": "cluster work/signatures.zarr --clusters 5 -o work/clusters.zarr",
    "select": "select work/clusters.zarr --count 30 -o work/selection.jsonl",
    "allocate": "allocate work/selection.jsonl --ranks 3 -o work/allocation",
    "train": "train work/allocation -m model --zero-stage 0 --seed 5 -o work/run",
}


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    return prepared.copy(tmp_path_factory, tmp_path / "a cöpy")


def typed(
    line: str, folder: Path, before: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command as typed; ``before`` runs in the child."""
    return subprocess.run(
        [sys.executable, "-m", "cluster_cli", *line.split()],
        cwd=folder,
        env=prepared.ENVIRONMENT | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=before,
    )


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What is said after ``error: ``; a worker's own log stands before it."""
    assert "Traceback" not in done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("error: ")]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    """40,000 lines are more than a pipe and its reader hold, so ``head`` is gone before the last one."""
    write_clusters(tmp_path / "clusters.zarr", np.repeat([0, 1, 2, 3], 10_000))
    line = f"{COMMAND} select clusters.zarr --method all -o - | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=tmp_path,
        env=prepared.ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    header, code = done.stdout.splitlines()
    assert header.startswith('{"format": "cluster-cli/selection"')
    assert code == "141"
    assert "rror" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["clusters.zarr"]


def no_room() -> None:
    """No file may grow beyond 1,000 bytes: what a full disk looks like, to this process alone."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param("score", marks=pytest.mark.slow),
        "cluster",
        "select",
        "allocate",
    ],
)
def test_a_full_disk_keeps_the_last_good_output(folder: Path, stage: str) -> None:
    output = f"work/{prepared.OUTPUTS[stage]}"
    before = contents(folder / "work")
    done = typed(AGAIN[stage], folder, no_room)
    assert done.returncode == 1, done.stderr
    (error,) = errors(done)
    assert error == f"error: cannot write {output}: File too large"
    after = contents(folder / "work")
    assert {name: after[name] for name in before} == before
    left = {name.split("/")[0] for name in after.keys() - before.keys()}
    assert left <= {f"{prepared.OUTPUTS[stage]}.partial"}


@pytest.mark.slow
def test_a_full_disk_keeps_the_last_good_run(folder: Path) -> None:
    before = contents(folder / "work" / "run")
    done = typed(
        AGAIN["train"], folder, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000,) * 2)
    )
    assert done.returncode == 1
    assert len(errors(done)) == 1
    assert contents(folder / "work" / "run") == before


def no_privileges() -> None:
    """Root may write anywhere; without these capabilities it is bound by permissions like others."""
    libc = ctypes.CDLL(None)
    drop, override, search, owner = 24, 1, 2, 3  # PR_CAPBSET_DROP, CAP_DAC_*, CAP_FOWNER
    for capability in (override, search, owner):
        libc.prctl(drop, capability, 0, 0, 0)


@pytest.mark.parametrize(
    "stage", [*list(AGAIN)[:-1], pytest.param("train", marks=pytest.mark.slow)]
)
def test_a_folder_one_cannot_write_to(folder: Path, stage: str) -> None:
    output = f"work/{prepared.OUTPUTS[stage]}"
    before = contents(folder / "work")
    (folder / "work").chmod(0o555)
    try:
        done = typed(AGAIN[stage], folder, no_privileges)
    finally:
        (folder / "work").chmod(0o755)
    assert (done.returncode, done.stdout) == (1, "")
    place = folder / output if stage == "train" else output
    assert errors(done) == [f"error: cannot write {place}.lock: Permission denied"]
    assert contents(folder / "work") == before


def test_artifacts_in_a_folder_one_cannot_write_to_can_be_read(folder: Path) -> None:
    (folder / "work").chmod(0o555)
    try:
        for line in (
            "select work/clusters.zarr --count 5 -o chosen.jsonl",
            "status work/clusters.zarr work/run --check",
            "status --check",
            "inspect work/selection.jsonl",
            "validate work/allocation",
        ):
            done = typed(line, folder, no_privileges)
            assert done.returncode == 0, done.stderr
    finally:
        (folder / "work").chmod(0o755)


def test_links_to_data_and_folders_are_followed(folder: Path) -> None:
    """Another name for the same content changes nothing, and results land where the link leads."""
    for name in ("data.jsonl", "work", "model"):
        (folder / name).rename(folder / f"the {name}")
        (folder / name).symlink_to(f"the {name}")
    done = typed("status --check", folder)
    assert done.returncode == 0, done.stdout
    assert typed("run --until select", folder).returncode == 0
    assert typed(AGAIN["select"], folder).returncode == 0
    assert (folder / "work").is_symlink()
    header = artifacts.read_header(folder / "the work" / "selection.jsonl", "selection")
    assert header.stats["selected"] == 30


def test_a_link_to_one_artifact_is_followed(folder: Path) -> None:
    """It names its inputs as seen from where it lies, which is not where the link is."""
    (folder / "links").mkdir()
    for name in ("clusters.zarr", "selection.jsonl", "allocation", "run"):
        (folder / "links" / name).symlink_to(f"../work/{name}")
    for line in (
        "status links/clusters.zarr links/selection.jsonl links/allocation links/run --check",
        "validate links/clusters.zarr links/selection.jsonl",
        "select links/clusters.zarr --count 5 --exclude ids.txt -o work/five.jsonl",
        "allocate links/selection.jsonl --ranks 2 -o two",
        "export links/selection.jsonl --to messages -o exported.jsonl",
    ):
        (folder / "ids.txt").write_text("1\n")
        done = typed(line, folder)
        assert done.returncode == 0, done.stderr
    header = artifacts.read_header(folder / "work" / "five.jsonl", "selection")
    assert header.inputs[0]["path"] == "clusters.zarr"
    (folder / "round").symlink_to("round")
    done = typed("select round --count 5 -o work/five.jsonl", folder)
    assert done.returncode == 1
    assert done.stderr == "error: cannot read round/zarr.json: Too many levels of symbolic links\n"


def test_an_output_that_is_a_link_is_replaced_and_its_target_left_alone(folder: Path) -> None:
    """Half of an output could not be exchanged at once on another disk; so the link itself is."""
    for name in ("selection.jsonl", "clusters.zarr"):
        shutil.move(folder / "work" / name, folder / name)
        (folder / "work" / name).symlink_to(folder / name)
    before = {name: contents(folder / name) for name in ("clusters.zarr",)}
    kept = (folder / "selection.jsonl").read_bytes()
    for stage in ("cluster", "select"):
        done = typed(AGAIN[stage], folder)
        assert done.returncode == 0, done.stderr
    for name in ("selection.jsonl", "clusters.zarr"):
        assert not (folder / "work" / name).is_symlink()
    assert contents(folder / "clusters.zarr") == before["clusters.zarr"]
    assert (folder / "selection.jsonl").read_bytes() == kept


def test_relative_paths_are_seen_from_where_one_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the artifact remembers its inputs from where it lies, not from where one was."""
    from cluster_cli.main import run

    (folder / "elsewhere").mkdir()
    (folder / "out").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    line = "select ../work/clusters.zarr --count 5 -o ../out/chosen.jsonl"
    assert run(line.split()) == 0
    header = artifacts.read_header(folder / "out" / "chosen.jsonl", "selection")
    assert header.inputs[0]["path"] == "../work/clusters.zarr"
    assert header.dataset["sources"][0]["path"] == "../data.jsonl"
    assert run(["allocate", "../out/chosen.jsonl", "--ranks", "2", "-o", "plan"]) == 0
    assert run(["validate", "plan", "../out/chosen.jsonl"]) == 0
    os.chdir(folder)
    assert run(["status", "--check", "elsewhere/plan"]) == 0
