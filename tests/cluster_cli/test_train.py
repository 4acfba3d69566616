"""``cluster-cli train``: its arguments, its output, its exit codes; the work is tested in stages/train."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import click
import pytest

from cluster_cli import pipeline, settings
from cluster_cli.main import cli, run
from cluster_cli.train import command
from formats.errors import SettingError
from stages.train import expected, train
from tests.stages.train.places import Place


def test_every_setting_of_the_stage_is_an_option_with_the_same_default() -> None:
    of_stage = {
        name: parameter.default
        for name, parameter in inspect.signature(train).parameters.items()
        if name not in ("allocation", "model", "output", "reporter")
    }
    parsed = command.make_context("train", ["allocation", "--model", "m", "-o", "run"]).params
    others = ("allocation", "model", "output", "as_json")
    of_command = {name: value for name, value in parsed.items() if name not in others}
    assert of_command.keys() == of_stage.keys()
    for name, default in of_stage.items():
        assert (of_command[name] or None) == (default or None), name


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def arguments(place: Place, *more: str) -> list[str]:
    output = str(place.folder / "run")
    return ["train", str(place.plan), "--model", str(place.model), "-o", output, *more]


def test_an_up_to_date_run_is_printed_as_json(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    from formats import artifacts
    from formats.allocation import Allocation
    from stages.models import find_model

    allocation = Allocation.open(place.plan).header.key
    params, key = expected(allocation, find_model(place.model), seed=3)
    header = artifacts.Header(kind="run", key=key, params=params, inputs=[])
    (place.folder / "run").mkdir()
    artifacts.write_json(place.folder / "run" / "run.json", header.to_json())
    assert run(arguments(place, "--seed", "3", "--json")) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["key"] == key
    assert err.splitlines()[-1] == "run is up to date"


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (
            ["--warmup", "2"],
            2,
            "error: warmup is 2.0, it must be a part of the steps, 0 to below 1",
        ),
        (
            ["--quantize", "4bit"],
            2,
            "error: quantize needs lora: quantized weights stay as they are",
        ),
        (
            ["--offload", "parameters", "--zero-stage", "1"],
            2,
            "error: offload parameters needs zero_stage 3, it is 1",
        ),
        (
            ["--resume", "--force"],
            2,
            "error: resume goes on with a run, force begins it again; give one of them",
        ),
        (
            ["--schedule", "step"],
            2,
            "error: Invalid value for '--schedule': 'step' is not one of "
            "'cosine', 'linear', 'constant'; see `cluster-cli train --help`",
        ),
        (
            ["--deepspeed", "none.json"],
            2,
            "error: cannot read the DeepSpeed configuration none.json: No such file or directory",
        ),
        (
            ["--hostfile", "none"],
            2,
            "error: cannot read the hostfile none: No such file or directory",
        ),
        (
            ["--data", "a", "--data", "b"],
            2,
            "error: --data names 2 files, the allocation was made "
            "from 1; name them all, in the order given to `cluster-cli score`",
        ),
    ],
)
def test_errors(
    place: Place,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    code: int,
    message: str,
) -> None:
    assert run(arguments(place, *more)) == code
    assert capsys.readouterr().err.splitlines()[-1] == message
    assert not (place.folder / "run").exists()


TOML = """\
[score]
data = ["a.jsonl"]
model = "base"
[select]
fraction = 0.5
[allocate]
ranks = 2
[train]
offload = "optimizer"
lora = 4
quantize = "4bit"
init-from = "{run}"
"""


def test_the_newer_settings_in_a_file(place: Place, tmp_path: Path) -> None:
    from formats import artifacts

    (tmp_path / "earlier").mkdir()
    place.model.rename(tmp_path / "earlier" / "model")
    header = artifacts.Header(kind="run", key="k", params={}, inputs=[])
    artifacts.write_json(tmp_path / "earlier" / "run.json", header.to_json())
    file = tmp_path / "cluster.toml"
    file.write_text(TOML.format(run=tmp_path / "earlier"))
    with click.Context(cli, auto_envvar_prefix="CLUSTER_CLI") as context:
        settings.apply(context, None, ["train.zero-stage=1", "train.quantize=4bit"])
        with pipeline.opened(context, file) as chain:
            found = chain.arguments["train"]
    assert (found["offload"], found["quantize"], found["lora"]) == ("optimizer", "4bit", 4)
    assert (found["init_from"], found["model"]) == (tmp_path / "earlier", "base")
    assert found["zero_stage"] == 1


def test_settings_in_a_file_that_contradict_each_other(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(TOML.format(run=tmp_path / "none").replace("lora = 4\n", ""))
    with click.Context(cli, auto_envvar_prefix="CLUSTER_CLI") as context:
        settings.apply(context, None, [])
        with pytest.raises(SettingError) as caught, pipeline.opened(context, file):
            pass
    assert "none does not exist; make it with `cluster-cli train" in str(caught.value)


def test_no_model(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", str(place.plan), "-o", str(place.folder / "run")]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: there is no model to train; name one with --model, or a run with --init-from"
    )


def test_no_allocation(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    (place.plan / "manifest.json").unlink()
    assert run(arguments(place)) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"error: {place.plan} is incomplete; make it with `cluster-cli allocate ... -o {place.plan}`"
    )
