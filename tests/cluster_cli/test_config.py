"""``config show`` as typed: every setting, its value, and where that value comes from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
import pytest

from cluster_cli import pipeline
from cluster_cli.main import cli, run

TOML = """\
[score]
data = "a b.jsonl"
model = "base"
rank = 64
field = ["prompt=Frage", "response=Antwort"]
[select]
fraction = 0.5
"""


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("CLUSTER_CLI_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    Path("cluster.toml").write_text(TOML)


def says(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(arguments) == code
    return capsys.readouterr().out


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(says(capsys, *arguments, "config", "show", "--json"))
    return found


def test_what_is_changed(capsys: pytest.CaptureFixture[str]) -> None:
    """``rank = 64`` stands in the file and is the default all the same."""
    assert says(capsys, "config", "show", "--changed") == (
        'score.data       ["a b.jsonl"]                         file\n'
        'score.model      "base"                                file\n'
        'score.field      ["prompt=Frage", "response=Antwort"]  file\n'
        "select.fraction  0.5                                   file\n"
    )


def test_every_section_up_to_the_last_stage(capsys: pytest.CaptureFixture[str]) -> None:
    lines = says(capsys, "config", "show").splitlines()
    assert lines[0].split() == ["paths.folder", '"work"', "default"]
    names = [line.split()[0] for line in lines]
    assert list(dict.fromkeys(name.split(".")[0] for name in names)) == [
        *("paths", "score", "cluster", "select")
    ]
    assert len(set(names)) == len(names)
    cells = {line.split()[0]: line.split()[1:] for line in lines}
    assert cells["score.rank"] == ["64", "file"]
    assert cells["score.split"] == ["none", "default"]
    assert cells["cluster.centre"] == ["true", "default"]
    assert cells["cluster.output"] == ['"work/clusters.zarr"', "paths.folder"]


def test_every_option_that_a_pipeline_takes_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cluster.toml").write_text(TOML + "[allocate]\nranks = 2\n[train]\n")
    found = shown(capsys)
    with click.Context(cli) as context:
        for stage in ("score", "cluster", "select", "allocate", "train"):
            command = cli.get_command(context, stage)
            assert command is not None
            outside = pipeline.foreign(stage, command)
            keys = {
                max(option.opts, key=len)[2:]
                for option in command.params
                if isinstance(option, click.Option) and option.name not in outside
            }
            assert set(found[stage]) == keys | ({"data"} if stage == "score" else set())
    assert found["train"]["model"] == {"value": "base", "default": "base", "source": "score.model"}


def test_set_stands_above_the_environment_and_that_above_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = {"value": 64, "default": 64, "source": "file"}
    assert shown(capsys)["score"]["rank"] == rank
    monkeypatch.setenv("CLUSTER_CLI_SCORE_RANK", "32")
    monkeypatch.setenv("CLUSTER_CLI_PATHS_FOLDER", "elsewhere")
    found = shown(capsys)
    assert found["score"]["rank"] == rank | {"value": 32, "source": "environment"}
    assert found["paths"]["folder"] == {
        "value": "elsewhere",
        "default": "work",
        "source": "environment",
    }
    assert found["select"]["output"]["value"] == "elsewhere/selection.jsonl"
    found = shown(
        capsys,
        *("--set", "score.rank=16", "--set", "paths.folder=x", "--set", "score.max_length=9"),
        *("--set", "score.on-bad-row=skip"),
    )
    assert found["score"]["rank"] == rank | {"value": 16, "source": "--set"}
    assert found["score"]["max-length"]["value"] == 9
    assert {found["score"][name]["source"] for name in ("max-length", "on-bad-row")} == {"--set"}
    assert found["paths"]["folder"]["source"] == "--set"


def test_another_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sub").mkdir()
    Path("sub/mine.toml").write_text('[paths]\nfolder = "out"\n' + TOML)
    wanted = says(capsys, "config", "show", "sub/mine.toml", "--changed")
    assert wanted.splitlines()[0].split() == ["paths.folder", '"out"', "file"]
    assert says(capsys, "--config", "sub/mine.toml", "config", "show", "--changed") == wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["config", "show", "gone.toml"],
            "there is no file gone.toml; write one with `cluster-cli init DATA`, or name yours",
        ),
        (["config"], "Missing command; see `cluster-cli config --help`"),
        (["config", "shw"], "No such command 'shw'"),
        (
            ["--set", "score.rank=many", "config", "show"],
            "cluster.toml: score.rank (from --set, or CLUSTER_CLI_SCORE_RANK): 'many' is not a "
            "whole number",
        ),
    ],
)
def test_what_is_wrong(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {message}")
    assert captured.err.count("\n") == 1


def test_all_problems_of_the_file_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cluster.toml").write_text(TOML + "quta = 'sqrt'\n[allocate]\n")
    assert run(["config", "show"]) == 2
    assert capsys.readouterr().err == (
        "error: cluster.toml: select has no setting 'quta' (did you mean 'quota'?)\n"
        "error: cluster.toml: [allocate] needs ranks\n"
    )
