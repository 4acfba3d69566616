"""`cluster-cli select`: flags, exit codes, what goes to stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from cluster_cli import pipeline
from cluster_cli.main import cli, run
from formats.errors import SettingError
from formats.selection import read_selection
from stages.select import select
from tests.synthetic import write_clusters, write_signatures


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
        "the mix changes: 13% of the weight is on other clusters than in the data, as the quotas ask; "
        "--weights restores it\n"
        "selected 30 of 100 rows (30.0%, 30.0% of the tokens) from 3 of 3 clusters; "
        "effective sample size 30\n"
    )
    assert len(read_selection(output)) == 30


def test_what_is_not_given_is_as_in_the_stage(clusters: Path) -> None:
    output = clusters.parent / "selection.jsonl"
    assert run(["select", str(clusters), "-o", str(output), "--fraction", "0.3"]) == 0
    header = read_selection(output).header
    assert header.key == select(clusters, clusters.parent / "other.jsonl", fraction=0.3).key
    said = {"quota": "sqrt", "within": "random", "trim": 0.0, "weights": False}
    assert {name: header.params[name] for name in said} == said


def test_as_published(clusters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = clusters.parent / "selection.jsonl"
    arguments = ["select", str(clusters), "-o", str(output), "--fraction", "0.3"]
    assert run([*arguments, "--quota", "equal", "--within", "farthest", "--weights"]) == 0
    # Weights 1.8, 0.9 and 0.3, ten of each: 30 squared over 10 (3.24 + 0.81 + 0.09) is 21.7.
    assert capsys.readouterr().err == (
        "selected 30 of 100 rows (30.0%, 30.0% of the tokens) from 3 of 3 clusters; "
        "effective sample size 22\n"
    )
    chosen = read_selection(output)
    assert np.bincount(chosen.cluster).tolist() == [10, 10, 10]
    assert chosen.weight.tolist() == pytest.approx(np.repeat([1.8, 0.9, 0.3], 10).tolist())


def test_stdout_holds_data_only(clusters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["select", str(clusters), "-o", "-", "--count", "5", "--quota", "neyman"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert json.loads(lines[0])["params"]["quota"] == "neyman"


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


def test_a_quota_is_a_name_or_a_power(clusters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["select", str(clusters), "-o", "-", "--count", "30", "--quota"]
    chosen = {}
    for quota in ("sqrt", "0.5", "0.75"):
        assert run([*arguments, quota]) == 0
        chosen[quota] = capsys.readouterr().out
    assert chosen["sqrt"] == chosen["0.5"] != chosen["0.75"]
    # Of 30: 60, 30 and 10 to the power 0.75 are 21.6, 12.8 and 5.6 of 40.0; 16.2, 9.6 and 4.2.
    rows = [json.loads(line) for line in chosen["0.75"].splitlines()]
    assert rows[0]["params"]["quota"] == 0.75
    assert [sum(row["cluster"] == c for row in rows[1:]) for c in range(3)] == [16, 10, 4]
    for quota, message in (
        ("fair", "'fair' is neither a number nor one of equal, proportional, sqrt, neyman"),
        (
            "2",
            "there is no quota 2.0; use one of equal, proportional, sqrt, neyman, or a number from",
        ),
    ):
        assert run([*arguments, quota]) == 2
        assert message in capsys.readouterr().err


def test_auto_needs_the_signatures(clusters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(clusters.parent / "s.jsonl")
    arguments = ["select", str(clusters), "-o", output, "--fraction", "auto"]
    assert run(arguments) == 1
    assert capsys.readouterr().err == (
        f"error: {clusters} does not say which signatures it was made from\n"
    )


def test_lists_minimum_and_their_errors(clusters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, keep = clusters.parent / "s.jsonl", clusters.parent / "keep.txt"
    keep.write_text("# these\n95\n96\n")
    (clusters.parent / "drop.txt").write_text("0\n")
    arguments = ["select", str(clusters), "-o", str(output), "--min-per-cluster", "2"]
    arguments += ["--must-include", str(keep), "--exclude", str(clusters.parent / "drop.txt")]
    assert run([*arguments, "--count", "9", "--quota", "proportional"]) == 0
    chosen = read_selection(output)
    assert {95, 96} <= set(chosen.row.tolist())
    assert np.bincount(chosen.cluster).tolist() == [5, 2, 2]
    capsys.readouterr()
    assert run([*arguments, "--count", "5"]) == 2
    assert capsys.readouterr().err == (
        f"error: --min-per-cluster 2 and --must-include {keep} need 6 examples, the budget is 5; "
        "give at least --count 6\n"
    )
    keep.write_text("95\n0\n")
    assert run([*arguments, "--count", "9"]) == 1
    assert capsys.readouterr().err == (
        f"error: {keep}:2: 0 is to be included, and excluded by {clusters.parent / 'drop.txt'}:1; "
        "remove one of the two lines\n"
    )


def test_a_map_of_the_wrong_kind(clusters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(clusters.parent / "s.jsonl")
    assert run(["select", str(clusters), "-o", output, "--method", "s2l", "--count", "5"]) == 1
    assert capsys.readouterr().err.startswith(
        "error: --method s2l needs a map of signatures of the kind trajectory, and "
    )


CHAIN = """\
[score]
data = "data.jsonl"
model = "model"
[cluster]
[select]
count = 9
must-include = "keep.txt"
exclude = "drop.txt"
min-per-cluster = 2
stratify = "source"
"""


def read(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> dict[str, Any]:
    """What a pipeline file hands to the stage."""
    (folder / "cluster.toml").write_text(text)
    monkeypatch.chdir(folder)
    with (
        click.Context(cli, auto_envvar_prefix="CLUSTER_CLI") as context,
        pipeline.opened(context, Path("cluster.toml")) as chain,
    ):
        return dict(chain.arguments["select"])


def test_the_section_of_a_pipeline_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keep.txt").write_text("1\n")
    (tmp_path / "drop.txt").write_text("2\n")
    found = read(tmp_path, monkeypatch, CHAIN)
    wanted = {
        "must_include": Path("keep.txt"),
        "exclude": Path("drop.txt"),
        "min_per_cluster": 2,
        "stratify": "source",
        "target": None,
    }
    assert {name: found[name] for name in wanted} == wanted
    write_signatures(tmp_path / "wanted.zarr", np.eye(4))
    text = CHAIN.replace('stratify = "source"', 'target = "wanted.zarr"')
    assert read(tmp_path, monkeypatch, text)["target"] == Path("wanted.zarr")


def test_what_is_wrong_with_the_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drop.txt").write_text("2\n")
    with pytest.raises(SettingError) as error:
        read(tmp_path, monkeypatch, CHAIN)
    assert str(error.value) == (
        "cluster.toml: [select] cannot read keep.txt: No such file or directory"
    )
    (tmp_path / "keep.txt").write_text("1\n")
    with pytest.raises(SettingError) as error:
        read(tmp_path, monkeypatch, CHAIN + 'target = "none.zarr"\n')
    assert str(error.value) == (
        "cluster.toml: [select] --target changes the mix, and --stratify source keeps it; "
        "drop one of the two"
    )
