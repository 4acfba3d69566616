"""`cluster-cli allocate`: flags, exit codes, what goes to stdout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cluster_cli.main import run
from formats.allocation import Allocation
from stages.select import select
from tests.synthetic import write_clusters


@pytest.fixture
def selection(tmp_path: Path) -> Path:
    tokens = np.random.default_rng(0).integers(10, 90, 100)
    path = write_clusters(tmp_path / "c.zarr", np.repeat([0, 1, 2, 3], 25), tokens=tokens)
    select(path, tmp_path / "selection.jsonl", fraction=0.4)
    return tmp_path / "selection.jsonl"


def test_writes_a_plan_and_says_so_on_stderr(
    selection: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = selection.parent / "allocation"
    arguments = ["allocate", str(selection), "--ranks", "2", "-o", str(output), "--epochs", "2"]
    assert run([*arguments, "--micro-batch", "2", "--accumulation", "3"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "40 examples over 2 ranks: 4 steps of 12 an epoch"
    assert lines[1].startswith("two ranks on one cluster in a step: 0.0000 (random: ")
    allocation = Allocation.open(output)
    assert (allocation.ranks, allocation.micro_batch, allocation.accumulation) == (2, 2, 3)
    assert allocation.epochs == 2


def test_one_rank_is_not_compared_with_others(
    selection: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(selection.parent / "one")
    assert (
        run(["allocate", str(selection), "--ranks", "1", "--micro-batch", "4", "-o", output]) == 0
    )
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "40 examples over one rank: 10 steps of 4 an epoch"
    assert [line.split(":")[0] for line in lines[1:]] == ["clusters in a step"]


def test_json_prints_the_manifest(selection: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(selection.parent / "a")
    assert run(["allocate", str(selection), "--ranks", "4", "-o", output, "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    assert manifest["ranks"] == 4
    assert set(manifest["stats"]["plan"]) == set(manifest["stats"]["random"])


@pytest.mark.parametrize("ranks", ["0", "4097"])
def test_ranks_out_of_range(
    selection: Path, ranks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["allocate", str(selection), "--ranks", ranks, "-o", "a"]) == 2
    assert capsys.readouterr().err == (f"error: --ranks is {ranks}; give a number from 1 to 4096\n")


def test_ranks_are_required(selection: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["allocate", str(selection), "-o", "a"]) == 2
    assert "Missing option '--ranks'" in capsys.readouterr().err
