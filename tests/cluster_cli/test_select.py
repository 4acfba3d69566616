"""`cluster-cli select`: flags, exit codes, what goes to stdout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cluster_cli.main import run
from formats.selection import read_selection
from tests.synthetic import write_clusters


@pytest.fixture
def clusters(tmp_path: Path) -> Path:
    return write_clusters(tmp_path / "clusters.zarr", np.repeat([0, 1, 2], [60, 30, 10]))


def test_writes_a_selection_and_says_so_on_stderr(
    clusters: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = clusters.parent / "selection.jsonl"
    assert run(["select", str(clusters), "-o", str(output), "--fraction", "0.3"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "selected 30 of 100 rows (30.0%, 30.0% of the tokens) from 3 of 3 clusters; "
        "effective sample size 22\n"
    )
    assert len(read_selection(output)) == 30


def test_stdout_holds_data_only(clusters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["select", str(clusters), "-o", "-", "--count", "5", "--quota", "sqrt"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert json.loads(lines[0])["params"]["quota"] == "sqrt"


def test_json_prints_the_header(clusters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(clusters.parent / "s.jsonl")
    arguments = ["select", str(clusters), "-o", output, "--method", "all", "--json"]
    assert run(arguments) == 0
    assert json.loads(capsys.readouterr().out)["stats"]["selected"] == 100


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "error: no budget is given; add --fraction 0.31, --count N or --tokens N\n"),
        (
            ["--count", "200"],
            "error: --count 200 is more than the 100 clustered rows; give at most 100\n",
        ),
        (
            ["--count", "2", "--tokens", "9"],
            "error: --count 2 and --tokens 9 are both given; give one budget\n",
        ),
    ],
)
def test_wrong_budgets(
    clusters: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["select", str(clusters), "-o", str(clusters.parent / "s.jsonl"), *flags]) == 2
    assert capsys.readouterr().err == message


def test_json_and_stdout_exclude_each_other(
    clusters: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["select", str(clusters), "-o", "-", "--count", "5", "--json"]) == 2
    assert capsys.readouterr().err.startswith("error: --json and -o - both want stdout")


def test_a_fraction_that_is_no_number(clusters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["select", str(clusters), "-o", "s.jsonl", "--fraction", "most"]) == 2
    assert "'most' is neither a number nor auto" in capsys.readouterr().err


def test_auto_needs_the_signatures(clusters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(clusters.parent / "s.jsonl")
    arguments = ["select", str(clusters), "-o", output, "--fraction", "auto"]
    assert run(arguments) == 1
    assert capsys.readouterr().err == (
        f"error: {clusters} does not say which signatures it was made from\n"
    )
