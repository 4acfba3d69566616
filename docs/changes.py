"""``docs/changed_stages.md``: which stages a changed setting does again, asked of the stages themselves.

Every setting that a pipeline file takes is changed once, in a small pipeline, and the keys before and after
are compared (``stages.pipeline.keys``). Nothing of the tables is typed by hand.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import click

from cluster_cli import pipeline
from cluster_cli.main import cli
from cluster_cli.settings import STAGES
from formats.artifacts import Header
from formats.comparison import write_comparison

ROOT = Path(__file__).resolve().parents[1]
Sections = dict[str, dict[str, Any]]

BASE: Sections = {
    "score": {"data": ["train.jsonl"], "model": "base"},
    "cluster": {},
    "select": {"count": 10},
    "allocate": {"ranks": 2},
    "train": {},
}


@dataclass(frozen=True)
class Change:
    """What to set, where the option's type does not tell, and what must be set before and after."""

    to: Any
    given: dict[str, Any] = field(default_factory=dict)


_OLDER = {"reuse": "older.zarr"}
_WATCHED = {"eval-data": ["dev.jsonl"]}
_LAYERED = {"lora": 8}
CHANGES = {
    "score.data": Change(["train.jsonl", "more.jsonl"]),
    "score.model": Change("another"),
    "score.layers": Change("last:1"),
    "score.chat-template": Change("template.jinja"),
    "score.dtype": Change("float32"),
    "score.proxy": Change("another"),
    "score.checkpoint": Change(["base", "another"], {"kind": "trajectory", "checkpoint": ["base"]}),
    "score.warmup": Change("lora", {"warmup-fraction": 0.05}),
    "score.reuse": Change(["older-signatures.zarr"]),
    "score.hostfile": Change("hosts"),
    "score.field": Change(["prompt=question", "response=answer"]),
    "cluster.clusters": Change(5),
    "cluster.reuse": Change("older.zarr"),
    "cluster.extend": Change(True, _OLDER),
    "cluster.refit": Change(True, _OLDER),
    "cluster.hostfile": Change("hosts"),
    "select.fraction": Change(0.5, {"count": None, "fraction": 0.31}),
    "select.coverage": Change(0.9, {"count": None, "fraction": "auto"}),
    "select.curve": Change("comparison.json", {"count": None, "fraction": "auto"}),
    "select.count": Change(20),
    "select.tokens": Change(2000, {"count": None, "tokens": 1000}),
    "select.must-include": Change("ids.txt"),
    "select.exclude": Change("ids.txt"),
    "select.quota": Change("equal"),
    "select.stratify": Change("source"),
    "select.target": Change("older-signatures.zarr"),
    "select.signatures": Change("older-signatures.zarr"),
    "allocate.signatures": Change("older-signatures.zarr"),
    "train.model": Change("another"),
    "train.init-from": Change("earlier-run"),
    "train.zero-stage": Change(1),
    "train.offload": Change("optimizer"),
    "train.deepspeed": Change("ds.json"),
    "train.data": Change(["train.jsonl"]),
    "train.lora-alpha": Change(32.0, _LAYERED),
    "train.lora-dropout": Change(0.1, _LAYERED),
    "train.quantize": Change("4bit", _LAYERED),
    "train.eval-data": Change(["dev.jsonl"]),
    "train.eval-every": Change(10, _WATCHED),
    "train.patience": Change(2, {**_WATCHED, "eval-every": 10}),
    "train.keep-best": Change(True, _WATCHED),
    "train.hostfile": Change("hosts"),
}

# They choose other data of a hub name or a folder, and cannot be changed for the example's file.
_LIKE_DATA = ("split", "subset")

_HEAD = """\
# Which stages run again

`cluster-cli run` does a stage again when its key changes: the hash of its settings and of the content
of all it reads. Below, every setting of a pipeline file was changed as shown, and `●` stands where a key
became another.

What has no mark changes speed, memory, places or messages, never the result. `output`, and `folder` of
`[paths]`, are such, too: but under another name there is nothing yet, and the stage runs. `split` and
`subset` of `[score]` choose other data and do what `data` does.

Contents count, not names and times: a file that was touched, moved or copied changes nothing; one changed
byte in a data file or a weight does what `data` and `model` do below. A file that a setting names counts
likewise. `cluster-cli status` says what holds for your own files.

`memory` of `[cluster]` matters only where it makes the sample smaller, as it does here.

A mark at `score` does not mean that every row is computed again: where only the data changed, the rows that
are known already are copied.
"""


def page() -> str:
    """The whole page, in Markdown."""
    parts = [_HEAD]
    with _example():
        for stage in STAGES:
            parts.append(f"\n## [{stage}]\n\n{_table(stage)}")
    return "".join(parts)


def redone(stage: str, key: str, option: click.Parameter) -> tuple[list[str], str]:
    """The stages whose keys change with a setting, and how it was changed; in the example's folder."""
    change = CHANGES.get(f"{stage}.{key}") or Change(_another(f"{stage}.{key}", option))
    before = _with(BASE, stage, change.given)
    after = _with(before, stage, {key: change.to})
    old, new = _keys(_toml(before)), _keys(_toml(after))
    given = {
        name: value for name, value in change.given.items() if name != key and value is not None
    }
    tried = f"{_shown(before[stage].get(key, _default(option)))} -> {_shown(change.to)}"
    if given:
        tried += " with " + ", ".join(f"{name} = {_shown(value)}" for name, value in given.items())
    return [name for name in STAGES if old[name] != new[name]], tried


def options(stage: str) -> dict[str, click.Parameter]:
    """What can be set in a section, by its spelling there."""
    with click.Context(cli) as context:
        command = cli.get_command(context, stage)
    assert command is not None
    outside = {"output", *_LIKE_DATA, *pipeline.foreign(stage, command)}
    return {
        max(option.opts, key=len).lstrip("-"): option
        for option in command.params
        if option.name not in outside and (option.nargs == -1 or isinstance(option, click.Option))
    }


def _table(stage: str) -> str:
    lines = [f"| setting | changed | {' | '.join(STAGES)} |", "| --- | --- |" + " :-: |" * 5]
    for key, option in options(stage).items():
        names, tried = redone(stage, key, option)
        marks = " | ".join("●" if name in names else " " for name in STAGES)
        lines.append(f"| `{key}` | `{tried}` | {marks} |")
    return "\n".join(lines) + "\n"


def _another(place: str, option: click.Parameter) -> Any:
    """A value that is not the default, where the type of the option says what there is.

    Raises:
        LookupError: it does not; ``CHANGES`` must.
    """
    default, kind = _default(option), option.type
    if kind.name == "boolean":
        return not default
    if isinstance(kind, click.Choice):
        return next(choice for choice in kind.choices if choice != default)
    if kind.name in ("integer", "integer range"):
        return 2 * default if default else 20
    if kind.name in ("float", "float range"):
        return default / 2 if default else 0.1
    raise LookupError(f"docs/changes.py must say how to change {place}, in CHANGES")


def _default(option: click.Parameter) -> Any:
    """None where there is none."""
    if isinstance(option, click.Option) and option.is_flag:
        return option.default is True
    default = option.default
    return default if isinstance(default, (bool, int, float, str)) else None


def _with(sections: Sections, stage: str, values: dict[str, Any]) -> Sections:
    """Sections with other values in one of them; None takes a value away."""
    merged = {**sections[stage], **values}
    return {**sections, stage: {key: value for key, value in merged.items() if value is not None}}


def _toml(sections: Sections) -> str:
    lines = []
    for stage, values in sections.items():
        lines += [f"[{stage}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> str:
    return "none" if value is None else json.dumps(value).strip('"')


@cache
def _keys(text: str) -> dict[str, str]:
    from stages.pipeline import keys

    Path("cluster.toml").write_text(text, encoding="utf-8")
    # Another prefix than the program's: what is set in the reader's environment must not matter.
    context = click.Context(cli, auto_envvar_prefix="CLUSTER_CLI_DOCS")
    with pipeline.opened(context, Path("cluster.toml")) as chain:
        return keys(chain)


@contextlib.contextmanager
def _example() -> Iterator[None]:
    """The files that the settings name, in a folder of their own; a key asks for their bytes alone."""
    older = ROOT / "tests" / "data" / "1.0"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name in ("train", "more", "dev"):
            row = {"question": name, "answer": name}
            Path(f"{name}.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
        for name in ("base", "another", "earlier-run/model"):
            Path(name).mkdir(parents=True)
            for file in ("config.json", "model.safetensors", "tokenizer.json"):
                Path(name, file).write_text(name, encoding="utf-8")
        shutil.copy(older / "run" / "run.json", "earlier-run")
        shutil.copytree(older / "clusters.zarr", "older.zarr")
        shutil.copytree(older / "signatures.zarr", "older-signatures.zarr")
        for name, text in (("template.jinja", "{{ x }}"), ("ids.txt", "0\n"), ("hosts", "a\n")):
            Path(name).write_text(text, encoding="utf-8")
        header = Header("comparison", "0" * 64, {}, [])
        write_comparison(Path("comparison.json"), header, arms=[], verdicts=[], trials=[])
        Path("ds.json").write_text('{"gradient_clipping": 0.5}', encoding="utf-8")
        yield
