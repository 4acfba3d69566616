"""Headers, freshness, locks and the atomic commit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats import artifacts
from formats.errors import ArtifactError, ArtifactMissingError, OutputBusyError
from formats.fingerprints import canonical_json, digest, file_sha256
from formats.version import __version__

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def header(**changes: Any) -> artifacts.Header:
    fields: dict[str, Any] = {"kind": "run", "key": "k", "params": {"a": 1}, "inputs": []}
    return artifacts.Header(**{**fields, **changes})


def write(folder: Path, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    artifacts.write_json(folder / "run.json", {**header().to_json(), **changes})
    return folder


@given(VALUES)
def test_canonical_json_is_one_spelling(value: Any) -> None:
    again = json.loads(canonical_json(value))
    assert canonical_json(again) == canonical_json(value)
    assert digest(again) == digest(value)


def test_what_json_cannot_hold_is_an_error_not_a_random_key() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        digest({"x": float("nan")})
    with pytest.raises(TypeError):
        digest({"x": object()})


@given(st.dictionaries(st.text(min_size=1), VALUES, max_size=4))
def test_headers_come_back_as_written(stats: dict[str, Any]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        artifacts.write_json(path / "run.json", header(stats=stats, extra={"e": 1}).to_json())
        got = artifacts.read_header(path, "run")
        assert (got.stats, got.extra["e"], got.key) == (stats, 1, "k")
        assert got.created_by == f"cluster-cli {__version__}"


def test_every_way_a_header_can_be_wrong(tmp_path: Path) -> None:
    def message(path: Path, kind: str = "run") -> str:
        with pytest.raises(ArtifactError) as error:
            artifacts.read_header(path, kind)
        return str(error.value)

    absent = tmp_path / "absent"
    rebuild = f"`cluster-cli train ... -o {absent}`"
    assert message(absent) == f"{absent} does not exist; make it with {rebuild}"
    half = tmp_path / "half"
    half.mkdir()
    assert message(half).startswith(f"{half} is incomplete; make it with ")
    file = tmp_path / "file"
    file.write_text("x")
    assert message(file).startswith(f"{file} is a file, not run; ")
    assert message(half, "selection").startswith(f"{half} is a folder, not selection; ")
    (half / "run.json").write_text("{")
    assert message(half).startswith(f"{half}/run.json has no readable header; ")
    (half / "run.json").write_text("[1]")
    assert message(half).startswith(f"{half}/run.json has no readable header; ")
    other = write(tmp_path / "other", format="cluster-cli/clusters")
    assert message(other).startswith(f"{other} holds clusters, not run; give the output of ")
    future = write(tmp_path / "future", format_version="2.3")
    assert message(future) == (
        f"{future} has format version 2.3, this program reads 1.0; "
        f"rebuild it with `cluster-cli train ... -o {future}`"
    )
    unfinished = write(tmp_path / "unfinished", complete=False)
    assert message(unfinished).startswith(f"{unfinished} is incomplete; finish it with ")
    lacking = write(tmp_path / "lacking")
    raw = json.loads((lacking / "run.json").read_text())
    del raw["key"]
    (lacking / "run.json").write_text(json.dumps(raw))
    assert message(lacking).startswith(f"{lacking} lacks the header fields key; ")


def test_missing_is_also_a_file_not_found_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        artifacts.read_header(tmp_path / "x", "selection")
    assert isinstance(error.value, ArtifactMissingError)
    assert str(error.value).startswith(f"{tmp_path}/x does not exist; ")


def test_a_minor_version_is_read(tmp_path: Path) -> None:
    assert artifacts.read_header(write(tmp_path / "m", format_version="1.9"), "run").key == "k"


def test_fresh_only_with_the_very_key(tmp_path: Path) -> None:
    run = write(tmp_path / "run")
    assert artifacts.fresh_header(run, "run", "k") is not None
    assert artifacts.fresh_header(run, "run", "other") is None
    assert artifacts.fresh_header(tmp_path / "none", "run", "k") is None


def test_stage_version_and_inputs_are_in_the_key_and_order_is_not() -> None:
    key = artifacts.stage_key("s", 1, params={"a": 1, "b": 2}, inputs=["x"])
    assert key == artifacts.stage_key("s", 1, params={"b": 2, "a": 1}, inputs=["x"])
    for other in (
        artifacts.stage_key("s", 2, params={"a": 1, "b": 2}, inputs=["x"]),
        artifacts.stage_key("t", 1, params={"a": 1, "b": 2}, inputs=["x"]),
        artifacts.stage_key("s", 1, params={"a": 1, "b": 3}, inputs=["x"]),
        artifacts.stage_key("s", 1, params={"a": 1, "b": 2}, inputs=["y"]),
    ):
        assert key != other


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), artifacts.atomic_file(path) as stream:
        stream.write("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.jsonl"]
    with artifacts.atomic_file(path) as stream:
        stream.write("new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["file.jsonl"]


def test_an_unwritable_place_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with (
        pytest.raises(ArtifactError, match=r"cannot write .*/no/file: No such file or directory"),
        artifacts.atomic_file(tmp_path / "no" / "file"),
    ):
        pass
    (tmp_path / "blocked").write_text("")
    with (
        pytest.raises(ArtifactError, match=r"cannot write .*/blocked/x\.lock: "),
        artifacts.locked(tmp_path / "blocked" / "x"),
    ):
        pass


def test_commit_replaces_the_old_folder_and_leaves_nothing_behind(tmp_path: Path) -> None:
    output = tmp_path / "out"
    for text in ("one", "two"):
        (artifacts.fresh_partial(output) / "file").write_text(text)
        artifacts.commit(output)
        assert (output / "file").read_text() == text
        assert os.listdir(tmp_path) == ["out"]


def test_what_is_no_artifact_is_never_replaced(tmp_path: Path) -> None:
    data, folder = tmp_path / "data.jsonl", tmp_path / "folder"
    data.write_text('{"question": "a"}\n')
    folder.mkdir()
    (folder / "thesis.txt").write_text("x")
    for place in (data, folder):
        with pytest.raises(ArtifactError) as error, artifacts.locked(place):
            pass
        assert str(error.value) == (
            f"{place} exists and was not made by cluster-cli; "
            "choose another output, or remove it yourself"
        )
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "new", write(tmp_path / "run")):
        with artifacts.locked(place):
            pass


HOLDER = """
import sys, time
from pathlib import Path
from formats import artifacts
with artifacts.locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_kernel_frees_a_lock_of_a_killed_process(tmp_path: Path) -> None:
    output = tmp_path / "out"
    command = [sys.executable, "-c", HOLDER, str(output)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(OutputBusyError) as error, artifacts.locked(output):
        pass
    assert f"{output} is being written by process {holder.pid} on " in str(error.value)
    holder.send_signal(signal.SIGKILL)
    holder.wait(10)
    with artifacts.locked(output):
        assert (tmp_path / "out.lock").exists()
    assert not (tmp_path / "out.lock").exists()


COUNTER = """
import sys, time
from pathlib import Path
from formats import artifacts
from formats.errors import OutputBusyError
path = Path(sys.argv[1])
for _ in range(100):
    while True:
        try:
            with artifacts.locked(path.with_name("output")):
                value = int(path.read_text())
                time.sleep(0.0002)
                path.write_text(str(value + 1))
            break
        except OutputBusyError:
            time.sleep(0.0005)
"""


def test_two_processes_never_hold_the_lock_at_once(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")
    workers = [subprocess.Popen([sys.executable, "-c", COUNTER, str(path)]) for _ in range(2)]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert path.read_text() == "200"


def test_dataset_paths_follow_the_artifact(tmp_path: Path) -> None:
    dataset = {"sources": [{"path": "../data.jsonl", "sha256": "x"}], "shape": "qa"}
    moved = artifacts.rebase_dataset(dataset, tmp_path / "a", tmp_path / "b" / "c")
    assert moved["sources"][0]["path"] == "../../data.jsonl"
    assert moved["shape"] == "qa"
    absolute = artifacts.rebase_dataset(dataset, tmp_path / "a", None)
    assert absolute["sources"][0]["path"] == str(tmp_path / "data.jsonl")


def test_a_remembered_hash_follows_the_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    big = tmp_path / "big"
    big.write_bytes(b"a" * 9_000_000)
    first = file_sha256(big)
    assert len(list((tmp_path / "cache").rglob("*"))) > 0
    assert file_sha256(big) == first
    time.sleep(0.01)
    big.write_bytes(b"b" * 9_000_000)
    assert file_sha256(big) != first
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert file_sha256(tmp_path / "big") != first
