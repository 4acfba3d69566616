"""The pipeline file: what it means, and everything that can be wrong with it."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import click
import pytest

from cluster_cli import pipeline, settings
from cluster_cli.main import cli, run
from formats.errors import SettingError
from stages.pipeline import Pipeline
from stages.pipeline.chain import FUNCTIONS

WHOLE = """\
[score]
data = ["a.jsonl", "b.jsonl"]
model = "base"
field = ["prompt=Q", "response=A"]
[cluster]
memory = 0.5
[select]
fraction = 0.5
[allocate]
ranks = 2
[train]
"""


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("CLUSTER_CLI_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def read(text: str, *assignments: str, file: str = "cluster.toml") -> Pipeline:
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(text)
    with click.Context(cli, auto_envvar_prefix="CLUSTER_CLI") as context:
        settings.apply(context, None, assignments)
        with pipeline.opened(context, Path(file)) as chain:
            return chain


def wrong(text: str, *assignments: str) -> list[str]:
    """The problems, without the file's name."""
    with pytest.raises(SettingError) as error:
        read(text, *assignments)
    assert error.value.exit_code == 2
    problems = [str(problem) for problem in error.value.data["problems"]]  # type: ignore[attr-defined]
    assert str(error.value) == "; ".join(problems)
    return [problem.removeprefix("cluster.toml: ") for problem in problems]


def test_a_file_becomes_the_arguments_of_the_stages() -> None:
    chain = read(WHOLE)
    assert chain.stages == list(FUNCTIONS)
    first = chain.arguments["score"]
    assert first["data"] == ("a.jsonl", "b.jsonl")
    assert first["options"].fields == (("prompt", "Q"), ("response", "A"))
    assert first["settings"].rank == 64
    assert chain.arguments["cluster"]["memory"] == 1 << 29
    assert chain.arguments["select"]["fraction"] == 0.5
    assert chain.arguments["allocate"]["ranks"] == 2
    assert chain.arguments["train"]["model"] == "base"  # score's, unless it says another
    assert {stage: str(path) for stage, path in chain.outputs.items()} == {
        "score": "work/signatures.zarr",
        "cluster": "work/clusters.zarr",
        "select": "work/selection.jsonl",
        "allocate": "work/allocation",
        "train": "work/run",
    }


def test_every_argument_is_one_of_the_stages_function() -> None:
    """An option that a command translates must be translated here as well."""
    for stage, arguments in read(WHOLE).arguments.items():
        known = set(inspect.signature(FUNCTIONS[stage]).parameters)
        assert set(arguments) <= known, stage


def test_only_these_options_have_no_place_in_a_file() -> None:
    """Whoever adds an option sees here whether the pipeline passes it on."""
    with click.Context(cli) as context:
        commands = {stage: cli.get_command(context, stage) for stage in FUNCTIONS}
    found = {stage: pipeline.foreign(stage, command) for stage, command in commands.items()}
    common = {"force", "as_json"}
    assert found == dict.fromkeys(FUNCTIONS, common) | {
        "score": common | {"dry_run", "meter", "goal"},
        "train": common | {"resume"},
    }


def test_every_default_is_that_of_the_command() -> None:
    """What the file leaves out is as if the stage's function had been called without it."""
    for stage, arguments in read(WHOLE).arguments.items():
        for name, parameter in inspect.signature(FUNCTIONS[stage]).parameters.items():
            given = {"fraction", "ranks", "options", "memory"}
            if name not in arguments or name in given or parameter.default is parameter.empty:
                continue
            value, default = arguments[name], parameter.default
            assert (tuple(value) if default == () else value) == default, (stage, name)


def test_paths_start_at_the_files_folder_and_outputs_can_be_named() -> None:
    chain = read(WHOLE + 'output = "trained"\n[paths]\nfolder = "out"\n', file="sub/c.toml")
    assert str(chain.outputs["score"]) == "out/signatures.zarr"
    assert str(chain.outputs["train"]) == "trained"
    seen = []
    with pipeline.opened(click.Context(cli, auto_envvar_prefix="CLUSTER_CLI"), Path("sub/c.toml")):
        seen.append(Path.cwd().name)
    assert seen == ["sub"]
    assert Path.cwd().name != "sub"


def test_the_chain_ends_with_the_last_section() -> None:
    text = '[score]\ndata = "a.jsonl"\nmodel = "m"\n'
    assert read(text).stages == ["score"]
    assert read(text + "[select]\ncount = 3\n").stages == ["score", "cluster", "select"]
    assert wrong(text + "[train]\n") == [
        "[select] no budget is given; add --fraction 0.31, --count N or --tokens N",
        "[allocate] needs ranks",
    ]


def test_set_and_environment_stand_above_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    text = WHOLE + "seed = 1\n"
    assert read(text).arguments["train"]["seed"] == 1
    monkeypatch.setenv("CLUSTER_CLI_TRAIN_SEED", "2")
    assert read(text).arguments["train"]["seed"] == 2
    assert read(text, "train.seed=3").arguments["train"]["seed"] == 3
    assert str(read(text, "paths.folder=x").outputs["score"]) == "x/signatures.zarr"
    assert "CLUSTER_CLI_PATHS_FOLDER" not in os.environ  # --set lasts as long as its command


def test_a_wrong_value_from_outside_the_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_CLI_ALLOCATE_MICRO_BATCH", "none")
    assert wrong(WHOLE) == [
        "allocate.micro-batch (from --set, or CLUSTER_CLI_ALLOCATE_MICRO_BATCH): 'none' is not a whole "
        "number"
    ]


def test_all_problems_are_shown_at_once() -> None:
    assert wrong(
        """\
top = 1
[score]
rank = 3.7
modle = "x"
dims = true
[cluster]
clusters = "many"
memory = -1
force = true
[selct]
[select]
trim = 0.9
fraction = 0.3
[paths]
foldr = "x"
[allocate]
micro-batch = 0
[train]
model = "m"
schedule = "cosin"
resume = true
"""
    ) == [
        "'top' stands outside a section",
        "score.rank is 3.7, not a whole number",
        "score has no setting 'modle' (did you mean 'model'?)",
        "score.dims is True, not a whole number",
        "there is no section 'selct' (did you mean 'select'?)",
        "paths has no setting 'foldr' (did you mean 'folder'?)",
        "[score] needs data",
        "[score] needs model",
        "cluster.force does not belong into a pipeline",
        "cluster.clusters: 'many' is neither a positive number nor auto",
        "cluster.memory: -1.0 is not in the range x>0",
        "[select] --trim is 0.9; give a fraction from 0 to below 0.5",
        "[allocate] needs ranks",
        "allocate.micro-batch: 0 is not in the range x>=1",
        "train.resume does not belong into a pipeline",
        "train.schedule: 'cosin' is not one of 'cosine', 'linear', 'constant'",
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            '["a.jsonl", "b.jsonl"]',
            '"-"',
            "[score] data is '-', and a pipeline cannot read standard input",
        ),
        ('["prompt=Q", "response=A"]', '["answer"]', "[score] --field 'answer' is not ROLE=COLUMN"),
        (
            '["prompt=Q", "response=A"]',
            '["prompt=Q"]',
            "[score] no --field names the response; add",
        ),
        ('["prompt=Q", "response=A"]', "[3]", "score.field is [3], not a list, each a text"),
        ("memory = 0.5", "reuse = 'gone.zarr'", "[cluster] gone.zarr does not exist; make it with"),
        ("memory = 0.5", "extend = true", "[cluster] --extend needs an older map; add --reuse"),
        ("fraction = 0.5", "fraction = 2.0", "[select] --fraction is 2.0; give a number above 0"),
        (
            "fraction = 0.5",
            "fraction = 0.5\ncount = 3",
            "[select] --fraction 0.5 and --count 3 are both",
        ),
        ("ranks = 2", "ranks = 0", "[allocate] --ranks is 0; give a number from 1 to 4096"),
        (
            "[train]",
            "[train]\nwarmup = 2.0",
            "[train] warmup is 2.0, it must be a part of the steps",
        ),
        (
            "[train]",
            "[train]\ndeepspeed = 'no.json'",
            "[train] cannot read the DeepSpeed configuration",
        ),
        ("[score]", "[score]\nchat-template = 'no'", "[score] --chat-template no cannot be read"),
        (
            "[score]",
            "[score]\nkind = 'trajectory'",
            "[score] --checkpoint goes with --kind trajectory",
        ),
    ],
)
def test_one_problem(old: str, new: str, problem: str) -> None:
    (found,) = wrong(WHOLE.replace(old, new))
    assert found.startswith(problem)


def test_files_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run"]) == 2
    assert capsys.readouterr().err == (
        "error: there is no file cluster.toml; write one with `cluster-cli init DATA`, or name yours\n"
    )
    Path("empty.toml").write_text("")
    assert run(["status", "empty.toml"]) == 2
    assert capsys.readouterr().err == (
        "error: empty.toml: no section of a stage; begin with [score]\n"
    )
    Path("bad.toml").write_text("[score\n")
    assert run(["run", "bad.toml"]) == 2
    assert capsys.readouterr().err.startswith("error: bad.toml is not valid TOML: ")


def test_missing_data_and_models_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.toml").write_text('[score]\ndata = "a.jsonl"\nmodel = "./base"\n')
    assert run(["run", "c.toml"]) == 1
    first = capsys.readouterr().err
    Path("a.jsonl").write_text('{"question": "a", "answer": "b"}\n')
    assert run(["run", "c.toml"]) == 1
    assert "a.jsonl" in first
    assert capsys.readouterr().err == "error: no model folder at './base'; check the path\n"
