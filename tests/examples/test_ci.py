"""The files for continuous integration, DVC and Snakemake: they parse, and call commands that exist."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.artifacts import read_header
from tests import prepared, tiny
from tests.docs.commands import check, commands

EXAMPLES = prepared.ROOT / "examples"
FILES = ("ci/github.yml", "ci/gitlab.yml", "ci/gitlab-selection.yml", "dvc/dvc.yaml")
CHAIN = {
    "score": ["train.jsonl", "--model", "model", "-o", "work/signatures.zarr"],
    "cluster": ["work/signatures.zarr", "-o", "work/clusters.zarr"],
    "select": ["work/clusters.zarr", "-o", "work/selection.jsonl"],
    "allocate": ["work/selection.jsonl", "-o", "work/allocation"],
    "train": ["work/allocation", "--model", "model", "-o", "work/run"],
}


def read(name: str) -> Any:
    import yaml

    return yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))


def texts(value: Any) -> Iterator[str]:
    """Every text in it, however deep."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value


def called(name: str) -> list[list[str]]:
    return [words for text in texts(read(name)) for words in commands(text)]


@pytest.mark.parametrize("name", FILES)
def test_every_command_is_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings that a command needs may stand in its configuration file."""
    found = called(name)
    assert found
    for words in found:
        check_with_file(words, EXAMPLES / Path(name).parent)


def check_with_file(words: list[str], folder: Path) -> None:
    from cluster_cli.main import cli

    if words[0] != "--config":
        check(words)
        return
    import click

    file, stage, *arguments = words[1:]
    values = tomllib.loads((folder / file).read_text(encoding="utf-8"))[stage]
    command = cli.get_command(click.Context(cli), stage)
    assert command is not None
    defaults = {key.replace("-", "_"): value for key, value in values.items()}
    command.make_context(stage, arguments, default_map=defaults)


@pytest.mark.parametrize("name", ["ci/github.yml", "ci/gitlab-selection.yml"])
def test_ci_runs_checks_and_reports(name: str) -> None:
    found = [words for words in called(name) if words[0] != "key"]
    assert found == [
        ["status"],
        ["run"],
        ["status", "--check"],
        "report work/run --format md -o report.md".split(),
    ]


@pytest.mark.parametrize("name", ["ci/github.yml", "ci/gitlab.yml"])
def test_caches_are_named_after_keys(name: str) -> None:
    assert [words for words in called(name) if words[0] == "key"] == [
        ["key", "score"],
        ["key", "train"],
    ]


def test_the_caches_of_github_use_the_keys_of_the_step_before() -> None:
    steps = read("ci/github.yml")["jobs"]["selection"]["steps"]
    caches = [step["with"] for step in steps if step.get("uses", "").startswith("actions/cache")]
    paths = [path for cache in caches for path in cache["path"].split()]
    assert paths == [f"work/{name}" for name in prepared.OUTPUTS.values()]
    for cache, stage in zip(caches, ("score", "train"), strict=True):
        assert cache["key"] == cache["restore-keys"] + f"${{{{ steps.key.outputs.{stage} }}}}"


def test_the_caches_of_gitlab_use_the_keys_of_the_parent() -> None:
    parent, child = read("ci/gitlab.yml"), read("ci/gitlab-selection.yml")["selection"]
    handed = parent["selection"]["variables"]
    assert {"SCORE_KEY", "TRAIN_KEY", "MERGE_REQUEST"} == set(handed)
    caches = {cache["key"]: cache["paths"] for cache in child["cache"]}
    assert caches["signatures-$SCORE_KEY"] == ["work/signatures.zarr"]
    assert caches["chain-$TRAIN_KEY"] == [
        f"work/{name}" for stage, name in prepared.OUTPUTS.items() if stage != "score"
    ]
    used = set(re.findall(r"\$([A-Z_]+_KEY)", json.dumps(child)))
    assert used == {"SCORE_KEY", "TRAIN_KEY"}


def test_dvc_knows_what_each_stage_reads_and_writes() -> None:
    stages = read("dvc/dvc.yaml")["stages"]
    assert list(stages) == list(CHAIN)
    sections = tomllib.loads((EXAMPLES / "dvc" / "cluster.toml").read_text(encoding="utf-8"))
    assert list(sections) == list(CHAIN)
    before: str | None = None
    for name, stage in stages.items():
        assert commands(stage["cmd"]) == [["--config", "cluster.toml", name, *CHAIN[name]]]
        (output,) = stage["outs"]
        assert output == {f"work/{prepared.OUTPUTS[name]}": {"persist": True}}
        assert stage["params"] == [{"cluster.toml": [name]}]
        data = ["train.jsonl"] if name == "score" else [before]
        assert stage["deps"] == data + (["model"] if name in ("score", "train") else [])
        (before,) = output


def test_the_snakefile_calls_the_same_commands() -> None:
    text = (EXAMPLES / "snakemake" / "Snakefile").read_text(encoding="utf-8")
    shells = re.findall(r'shell:\s*"([^"]*)"', text)
    found = [words for shell in shells for words in commands(shell)]
    assert found == [["--config", "cluster.toml", name, *CHAIN[name]] for name in CHAIN]
    for words in found:
        check_with_file(words, EXAMPLES / "snakemake")
    stamps = re.findall(r'touch\("work/\.stamps/(\w+)"\)', text)
    assert stamps == list(CHAIN)


@pytest.fixture(scope="module")
def dvc(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program ``dvc``: the one there is, else one of an environment of its own."""
    if found := shutil.which("dvc"):
        return found
    folder = tmp_path_factory.mktemp("dvc")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "dvc"]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"dvc cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return str(folder / "bin" / "dvc")


@pytest.mark.slow
def test_dvc_redoes_what_has_changed_and_nothing_else(dvc: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLES / "dvc", tmp_path / "here"))
    tiny.save(folder / "model")
    tiny.write_jsonl(folder / "train.jsonl", tiny.questions(40))
    config = folder / "cluster.toml"
    small = config.read_text().replace('"auto"', "3").replace("ranks = 2", "ranks = 1")
    config.write_text(small.replace("max-length = 512", "max-length = 512\nrank = 4\ndims = 32"))
    programs = tmp_path / "bin"
    programs.mkdir()
    script = programs / "cluster-cli"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cluster_cli "$@"\n')
    script.chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(dvc).parent), os.environ["PATH"]])
    settings = {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(tmp_path / "cache")}
    environment = {**prepared.ENVIRONMENT, **settings, "PATH": path}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [dvc, *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    run("init", "--no-scm", "--quiet")
    assert re.findall(r"Running stage '(\w+)'", run("repro")) == list(CHAIN)
    assert not re.findall(r"Running stage", run("repro"))
    config.write_text(config.read_text().replace("seed = 0", 'seed = 1\nwithin = "random"'))
    assert re.findall(r"Running stage '(\w+)'", run("repro")) == ["select", "allocate", "train"]
    with (folder / "train.jsonl").open("a") as file:
        file.write('{"question": "What is 20 plus 20?", "answer": "40"}\n')
    assert re.findall(r"Running stage '(\w+)'", run("repro")) == list(CHAIN)
    # persist: the last signatures were still there, and their rows were copied.
    assert read_header(folder / "work/signatures.zarr", "signatures").stats["reused"] == 40
