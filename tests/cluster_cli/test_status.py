"""``status ARTIFACT...`` as typed: what has changed since, without a pipeline file."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cluster_cli.main import run
from formats import artifacts
from formats.fingerprints import file_sha256
from formats.selection import content_hash
from stages.models import find_model
from stages.select import select
from tests import prepared, tiny

PATHS = tuple(f"work/{name}" for name in prepared.OUTPUTS.values())
WIDTH = len("work/signatures.zarr")


@pytest.fixture
def here(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = prepared.untouched(tmp_path_factory)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def work(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    folder = prepared.copy(tmp_path_factory, tmp_path / "a cöpy")
    monkeypatch.chdir(folder)
    return folder


def said(capsys: pytest.CaptureFixture[str], *paths: str) -> dict[str, tuple[str, list[str]]]:
    """State and reasons by file name."""
    assert run(["status", "--json", *(paths or PATHS)]) == 0
    found = json.loads(capsys.readouterr().out)
    return {Path(state["output"]).name: (state["state"], state["reasons"]) for state in found}


def key(path: str, kind: str) -> str:
    return artifacts.read_header(path, kind).key[:12]


def test_fresh_ones(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--check", *PATHS]) == 0
    captured = capsys.readouterr()
    assert captured.out == "".join(
        f"{stage:<8}  fresh  work/{name}\n" for stage, name in prepared.OUTPUTS.items()
    )
    assert captured.err == ""


def test_as_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A header file names its artifact, as a Makefile does."""
    assert run(["status", "work/run/run.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "stage": "train",
            "state": "fresh",
            "fresh": True,
            "reasons": [],
            "key": artifacts.read_header("work/run", "run").key,
            "expected": None,
            "output": "work/run",
        }
    ]


def test_changed_data_are_found_from_every_artifact(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = file_sha256("data.jsonl")[:12]
    tiny.write_jsonl(work / "data.jsonl", tiny.questions(59))
    reason = f"data.jsonl: {old} -> {file_sha256('data.jsonl')[:12]}"
    assert said(capsys) == {Path(path).name: ("stale", [reason]) for path in PATHS}
    assert run(["status", "--check", "work/run"]) == 1
    assert capsys.readouterr().out == f"train  stale  work/run  {reason}\n"
    (work / "data.jsonl").unlink()
    assert said(capsys, "work/run")["run"] == ("stale", [f"data.jsonl: {old} -> missing"])


def test_an_artifact_made_anew_makes_stale_what_came_after(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content_hash(work / "work/selection.jsonl")[:12]
    select(Path("work/clusters.zarr"), Path("work/selection.jsonl"), count=10)
    after = content_hash(work / "work/selection.jsonl")[:12]
    stale = ("stale", [f"work/selection.jsonl: {before} -> {after}"])
    fresh: tuple[str, list[str]] = ("fresh", [])
    assert said(capsys) == {
        **dict.fromkeys(("signatures.zarr", "clusters.zarr", "selection.jsonl"), fresh),
        **dict.fromkeys(("allocation", "run"), stale),
    }


def test_another_model_is_found_where_it_was_named(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``score`` was told ``model``, seen from this folder; a run says where its own is."""
    old = find_model("model").weights_sha256[:12]
    tiny.save(work / "model", seed=1)
    reason = f"model: {old} -> {find_model('model').weights_sha256[:12]}"
    assert said(capsys) == {Path(path).name: ("stale", [reason]) for path in PATHS}
    monkeypatch.chdir("work")
    assert said(capsys, "signatures.zarr")["signatures.zarr"] == ("fresh", [])
    assert said(capsys, "run")["run"] == ("stale", [f"../{reason}"])


def test_what_lies_between_may_be_removed(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree("work/signatures.zarr")
    found = said(capsys)
    assert found.pop("signatures.zarr") == ("missing", ["not made yet"])
    assert set(map(str, found.values())) == {"('fresh', [])"}


def test_lists_and_targets_of_a_selection_are_inputs(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("keep.txt").write_text("3\n")
    maps, chosen = Path("work/clusters.zarr"), Path("chosen.jsonl")
    select(maps, chosen, count=10, must_include=Path("keep.txt"))
    assert said(capsys, "chosen.jsonl")["chosen.jsonl"] == ("fresh", [])
    old = file_sha256("keep.txt")[:12]
    Path("keep.txt").write_text("4\n")
    reason = f"keep.txt: {old} -> {file_sha256('keep.txt')[:12]}"
    assert said(capsys, "chosen.jsonl")["chosen.jsonl"] == ("stale", [reason])


def test_half_done_signatures_are_incomplete(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """61 of 101 blocks, here 2 of 4: the real array that a killed run leaves."""
    from stages.score import resuming

    whole = key("work/signatures.zarr", "signatures")
    group = resuming.open_partial(
        work / "work/signatures.zarr", prepared.ROWS, 64, prepared.BLOCK, whole, False
    )
    group["status"][: 2 * prepared.BLOCK] = 0
    assert said(capsys, "work/signatures.zarr")["signatures.zarr"] == ("fresh", [])
    data = Path("data.jsonl").read_text()
    Path("data.jsonl").write_text(data + data.splitlines()[0] + "\n")
    state, reasons = said(capsys, "work/signatures.zarr")["signatures.zarr"]
    assert (state, reasons[1:]) == ("stale", ["signatures.zarr.partial has 2 of 4 blocks"])
    shutil.rmtree("work/signatures.zarr")
    assert run(["status", "--check", "work/signatures.zarr"]) == 1
    assert capsys.readouterr().out == "score  incomplete  work/signatures.zarr  2 of 4 blocks\n"


def test_nothing_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--check", "work/other.zarr", "work/run"]) == 1
    assert capsys.readouterr().out == (
        "-      missing  work/other.zarr  not made yet\ntrain  fresh    work/run\n"
    )


def test_a_version_of_the_future(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("work/selection.jsonl")
    path.write_text(path.read_text().replace('"format_version": "1.0"', '"format_version": "2.0"'))
    reason = "work/selection.jsonl has format version 2.0, this program reads 1.0"
    assert said(capsys, "work/selection.jsonl")["selection.jsonl"] == ("stale", [reason])
    assert said(capsys, "work/allocation")["allocation"] == ("stale", [reason])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["data.jsonl"], 1, "data.jsonl is no artifact of cluster-cli; give one of "),
        (
            ["cluster.toml", "work/run"],
            2,
            "cluster.toml says which artifacts; give it alone, or artifacts; "
            "see `cluster-cli status --help`\n",
        ),
    ],
)
def test_what_is_wrong(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    assert run(["status", *arguments]) == code
    captured: Any = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {message}")


def test_looking_changes_nothing(here: Path) -> None:
    before = sorted((p, p.stat().st_mtime_ns) for p in here.rglob("*"))
    assert run(["status", *PATHS]) == 0
    assert sorted((p, p.stat().st_mtime_ns) for p in here.rglob("*")) == before
    assert os.getcwd() == str(here)
