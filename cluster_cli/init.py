"""``cluster-cli init``: a commented pipeline file, made from the commands' own options."""

from __future__ import annotations

import glob
import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from cluster_cli.options import PATH, data_options, parse_fields
from cluster_cli.pipeline import DEFAULT, FOLDER, foreign
from cluster_cli.settings import STAGES

_HEAD = """\
# A pipeline for cluster-cli. `cluster-cli run` makes what is missing or out of date, `cluster-cli status`
# says what that is. Keys are the options of the commands; a line that begins with # shows a default.
# Paths start at the folder of this file.

[paths]
folder = {folder}  # where the outputs go
"""
_MODEL, _DATA = "path/to/model", "train.jsonl"


@click.command("init")
@click.argument("data", nargs=-1)
@click.option("-m", "--model", default=_MODEL, help="Model folder, .gguf file or hub name.")
@click.option(
    "--ranks", type=click.IntRange(1), default=1, show_default=True, help="GPUs, or processes."
)
@click.option(
    "-o", "--output", type=PATH, default=DEFAULT, show_default=True, help="The file to write."
)
@data_options
@click.option("-f", "--force", is_flag=True, help="Overwrite the file.")
@click.pass_obj
def command(
    reporter: Any,
    data: tuple[str, ...],
    model: str,
    ranks: int,
    output: Path,
    shape: str,
    fields: tuple[str, ...],
    force: bool,
    **options: Any,
) -> None:
    """Write a commented cluster.toml for DATA, whose first rows are looked at.

    \b
    cluster-cli init train.jsonl --model ./base --ranks 4
    cluster-cli run
    """
    from formats.data import DataOptions
    from stages.init import detect, write

    about = ""
    if data:
        found = detect(data, DataOptions(format=shape, fields=parse_fields(fields), **options))
        first = "the first " if found.more else ""
        about = f"{first}{found.rows:,} rows have the shape {found.shape}"
        out = f"; {found.rejected:,} cannot be used and are left out" if found.rejected else ""
        reporter.message(about + out)
    folder = output.parent
    score = {
        "data": [_from(folder, name) for name in data or (_DATA,)],
        "model": _from(folder, model),
        "format": shape,
        "field": list(fields),
        **{name.replace("_", "-"): value for name, value in options.items()},
    }
    values = {"score": score, "select": {"fraction": 0.31}, "allocate": {"ranks": ranks}}
    write(output, _text(values, about), force=force)
    todo = [name for name, unset in (("data", not data), ("model", model == _MODEL)) if unset]
    fill = f"fill in {' and '.join(todo)}, then " if todo else ""
    reporter.message(f"wrote {output}; {fill}`cluster-cli run{_named(output)}`")


def _named(output: Path) -> str:
    return "" if str(output) == DEFAULT else f" {output}"


def _from(folder: Path, name: str) -> str:
    """A path as seen from the file's folder; names of the Hugging Face hub stay as they are."""
    if os.path.isabs(name) or not (os.path.exists(name) or glob.has_magic(name)):
        return name
    return os.path.relpath(name, folder)


def _text(values: dict[str, dict[str, Any]], about: str) -> str:
    parts = [_HEAD.format(folder=_toml(FOLDER))]
    for stage in STAGES:
        command = importlib.import_module(f"cluster_cli.{stage}").command
        title = (command.help or "").split("\n")[0]
        parts.append(f"\n# {title}\n[{stage}]\n")
        parts += [f"{line}\n" for line in _section(command, values.get(stage, {}), stage, about)]
    return "".join(parts)


def _section(
    command: click.Command, given: dict[str, Any], stage: str, about: str
) -> Iterator[str]:
    """What was given, then every default as a comment, then the names of what has none."""
    if "data" in given:
        yield f"data = {_toml(given['data'])}" + (f"  # {about}" if about else "")
    others, outside = [], {"output", *foreign(stage, command)}
    for option in command.params:
        name = max(option.opts, key=len).lstrip("-")
        if not isinstance(option, click.Option) or option.name in outside:
            continue
        default = option.default is True if option.is_flag else option.default
        help_text = f"  # {option.help}" if option.help else ""
        plain = isinstance(default, (bool, int, float, str))
        if given.get(name) not in (None, [], default):
            yield f"{name} = {_toml(given[name])}{help_text}"
        elif plain:
            yield f"# {name} = {_toml(default)}{help_text}"
        elif name == "model":
            yield "# model is the one of [score]"
        else:
            others.append(name)
    if others:
        yield f"# without a default: {', '.join(others)}; see `cluster-cli {stage} --help`"


def _toml(value: Any) -> str:
    """A value as TOML; for these types, JSON but for floats that JSON writes alike."""
    return json.dumps(value, ensure_ascii=False)
