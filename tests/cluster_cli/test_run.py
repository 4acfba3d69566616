"""``run``, ``status``, ``key``, ``inspect``, ``validate`` as typed: output, exit codes, and no torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_cli.main import run
from formats import artifacts
from tests import prepared, tiny

STAGES = tuple(prepared.OUTPUTS)


@pytest.fixture
def here(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = prepared.untouched(tmp_path_factory)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    """A copy, in a folder whose name is full of traps."""
    copied = prepared.copy(tmp_path_factory, tmp_path / "my précious work")
    monkeypatch.chdir(copied)
    return copied


def says(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """What a command prints on stdout."""
    assert run(arguments) == code
    return capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["run"], ["run", "-n"], ["status"], ["key", "train"]])
def test_with_everything_fresh_nothing_heavy_is_loaded(folder: Path, arguments: list[str]) -> None:
    program = (
        "import sys; from cluster_cli.main import run; code = run(sys.argv[1:]); "
        "heavy = [m for m in ('torch', 'transformers', 'sklearn', 'deepspeed', 'datasets', 'zarr') "
        "if m in sys.modules]; sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=prepared.ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    stamps = [f"{stage}: work/{name} is up to date\n" for stage, name in prepared.OUTPUTS.items()]
    assert done.stderr == ("".join(stamps) if arguments == ["run"] else "")


def test_the_plan(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = """\
score     up to date  work/signatures.zarr
cluster   up to date  work/clusters.zarr
select    run         seed: 0 -> 3
allocate  run         select will run again
train     run         allocate will run again
"""
    config = here.parent / f"{here.name}-changed.toml"
    text = (here / "cluster.toml").read_text().replace("[select]", "[select]\nseed = 3")
    (here / "changed.toml").write_text(text)
    try:
        assert says(capsys, "run", "changed.toml", "-n") == plan
        assert says(capsys, "--config", "changed.toml", "run", "-n") == plan
        assert says(capsys, "run", "changed.toml", "-n", "-f", "--until", "cluster") == (
            "score    run  forced\ncluster  run  forced\n"
        )
        found = json.loads(says(capsys, "run", "changed.toml", "-n", "--json", "--from", "select"))
        assert [(s["stage"], s["runs"]) for s in found] == [(name, True) for name in STAGES[2:]]
    finally:
        (here / "changed.toml").unlink()
    assert not config.exists()


def test_run_does_what_the_plan_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (folder / "cluster.toml").read_text().replace("fraction = 0.31", "count = 10")
    (folder / "cluster.toml").write_text(text)
    assert run(["run", "--until", "allocate", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert [(s["stage"], s["state"]) for s in found] == list(
        zip(STAGES, ["fresh", "fresh", "stale", "stale"], strict=False)
    )
    assert "select: fraction: 0.31 -> none; count: none -> 10\n" in captured.err
    assert artifacts.read_header(Path("work/selection.jsonl"), "selection").stats["selected"] == 10
    assert says(capsys, "status") == (
        "score     fresh  work/signatures.zarr\n"
        "cluster   fresh  work/clusters.zarr\n"
        "select    fresh  work/selection.jsonl\n"
        "allocate  fresh  work/allocation\n"
        f"train     stale  work/run              {train_reason()}\n"
    )


def train_reason() -> str:
    recorded = json.loads(Path("work/run/run.json").read_text())["inputs"][0]["sha256"]
    from formats.fingerprints import file_sha256

    return f"allocation: {recorded[:12]} -> {file_sha256('work/allocation/manifest.json')[:12]}"


def test_from_another_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir("/")
    assert run(["status", str(folder / "cluster.toml"), "--check"]) == 0


def test_check_exits_1_unless_all_is_fresh(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["status", "--check"]) == 0
    assert all(state["fresh"] for state in json.loads(says_json(capsys)))
    shutil.rmtree(folder / "work" / "run")
    assert run(["status"]) == 0
    capsys.readouterr()
    assert run(["status", "--check"]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "train     missing  work/run              not made yet"
    assert captured.err == ""
    tiny.write_jsonl(folder / "data.jsonl", tiny.questions(3))
    assert run(["status", "--check", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found[0]["state"] == "stale"
    assert set(found[0]) == {
        *("stage", "state", "fresh", "reasons", "key", "expected", "output"),
    }


def says_json(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    return says(capsys, "status", "--json")


def test_key(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = artifacts.read_header(here / "work" / "clusters.zarr", "clusters")
    assert says(capsys, "key", "cluster") == f"{header.key}\n"
    (here / "short.toml").write_text('[score]\ndata = "data.jsonl"\nmodel = "model"\n')
    try:
        assert run(["key", "train", "short.toml"]) == 2
    finally:
        (here / "short.toml").unlink()
    assert capsys.readouterr().err == (
        "error: this pipeline has no stage 'train'; its stages are score\n"
    )


def test_inspect(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = says(capsys, "inspect", "work/clusters.zarr", "--clusters", "2", "--examples", "1")
    lines = out.splitlines()
    header = artifacts.read_header(here / "work" / "clusters.zarr", "clusters")
    assert lines[0].startswith("work/clusters.zarr: clusters, format 1.0, made by cluster-cli ")
    assert lines[1] == f"key {header.key}"
    assert lines[3:7] == [
        "made from",
        "  work/signatures.zarr (signatures, as recorded)",
        "    data.jsonl (data, 60 rows, as recorded)",
        "    model (model, not checked)",
    ]
    assert "  clusters  4" in lines
    assert sum(line.startswith("cluster ") for line in lines) == 2
    assert sum(line.startswith("  typical  row ") for line in lines) == 2
    assert lines[-1] == "and 2 smaller clusters; --clusters 4 shows them"
    found = json.loads(says(capsys, "inspect", "work/clusters.zarr", "--json"))
    assert found["key"] == header.key
    assert len(found["clusters"]) == 4


@pytest.mark.parametrize("name", ["signatures.zarr", "selection.jsonl", "allocation", "run"])
def test_inspect_of_every_kind(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    out = says(capsys, "inspect", f"work/{name}", "--rows", "1")
    for title in ("made from", "parameters", "statistics", "first rows"):
        assert f"\n{title}\n" in out
    assert "rows" in json.loads(says(capsys, "inspect", f"work/{name}", "--json"))


def test_inspect_of_what_is_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "data.jsonl"]) == 1
    assert capsys.readouterr().err == (
        "error: data.jsonl is no artifact of cluster-cli; give one of signatures, clusters, selection, "
        "allocation, run, evaluation, comparison\n"
    )


def test_validate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [f"work/{name}" for name in prepared.OUTPUTS.values()]
    assert run(["validate", *paths]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split(" is whole: ")[0] for line in captured.err.splitlines()] == paths
    chunk = folder / "work" / "clusters.zarr" / "label" / "c" / "0"
    data = bytearray(chunk.read_bytes())
    data[3] ^= 16
    chunk.write_bytes(bytes(data))
    assert run(["-q", "validate", *paths]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: work/clusters.zarr/label/c/0 is damaged: ")
    assert error.count("\n") == 1
