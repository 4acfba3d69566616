"""``cluster-cli export``: its arguments, what it prints, its exit codes; the work is in stages/export."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from cluster_cli.export import KINDS, command
from cluster_cli.main import run
from stages.export import export
from stages.export.order import DEALS
from stages.export.trainers import TRAINERS
from tests.stages.export import places
from tests.stages.train import plans


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return places.full(tmp_path, plans.write_data(tmp_path / "data.jsonl"))


def test_options_are_the_function_s_arguments() -> None:
    assert tuple(TRAINERS) == KINDS
    parameters = inspect.signature(export).parameters
    of_stage = {n: p.default for n, p in parameters.items() if n not in ("source", "reporter")}
    parsed = command.make_context("export", ["plan", "--to", "trl", "-o", "out"]).params
    of_command = {n: value for n, value in parsed.items() if n not in ("source", "as_json")}
    assert of_command.keys() == of_stage.keys()
    for name in of_stage.keys() - {"to", "output"}:
        assert of_command[name] == of_stage[name], name
    deal = next(p for p in command.params if p.name == "deal")
    assert tuple(deal.type.choices) == DEALS  # type: ignore[attr-defined]


def test_rows_on_stdout(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", str(plan), "--to", "messages", "-o", "-"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line)["weight"] for line in out.splitlines()].count(3.0) == 1
    assert len(out.splitlines()) == 16
    assert err == ""


def test_a_folder_and_its_manifest(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", str(plan / "manifest.json"), "--to", "trl", "-o", str(tmp_path / "out")]
    assert run([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["stats"] == {"rows": 16, "steps": 2, "exact_steps": 2}
    assert err.splitlines() == [
        "warning: TRL drops the column weight: keep weights and plan with "
        "stages.export.trainer.PlanMixin, or repeat rows with --repeat",
        f"{tmp_path / 'out'}: 16 rows for trl",
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("manifest.json", "sft_config.yaml", "train.jsonl")
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["--to", "parquet", "-o", "-"],
            2,
            "error: parquet cannot go to stdout; name a file with -o",
        ),
        (
            ["--to", "messages", "-o", "-", "--json"],
            2,
            "error: --json and -o - both want stdout; see `cluster-cli export --help`",
        ),
        (
            ["--to", "trl", "-o", "out", "--repeat", "--copies", "0"],
            2,
            "error: copies is 0.0, it must be above 0",
        ),
        (["--to", "trl", "-o", "out"], 1, None),
    ],
)
def test_errors(
    plan: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str | None,
) -> None:
    data = plan.parent / "data.jsonl"
    if message is None:
        data.unlink()
        message = (
            f"error: the data file {data} is missing; "
            "put it back, or say where it is now with --data"
        )
    assert run(["export", str(plan), *arguments]) == code
    assert capsys.readouterr().err.splitlines()[-1] == message
