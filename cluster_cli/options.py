"""Options that several commands share, and how results are printed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from formats.artifacts import Header
from formats.places import Url, place


class _Place(click.Path):
    """A path; of an artifact to read also a URL that fsspec can open.

    Args:
        remote: URLs are allowed.
        read: an artifact. It names its inputs as seen from where it lies, so a link to it is followed.
    """

    def __init__(self, remote: bool = False, read: bool = False) -> None:
        super().__init__(path_type=Path)
        self.remote, self.read = remote, read

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        found = place(value)
        if isinstance(found, Url) and not self.remote:
            if param is not None and param.name == "output":
                advice = "outputs are local; write it here and copy it there"
            else:
                advice = "only a local path can be given here"
            self.fail(f"{found} is a URL: {advice}", param, ctx)
        if isinstance(found, Url):
            return found
        return super().convert(followed(found) if self.read else found, param, ctx)


def followed(path: Path) -> Path:
    """What a link stands for; a folder on the way that is a link keeps its name."""
    while path.is_symlink() and path.exists():
        path = Path(os.path.normpath(path.parent / os.readlink(path)))
    return path


PATH = _Place()
ARTIFACT = _Place(remote=True, read=True)
LOCAL_ARTIFACT = _Place(read=True)


def output_option(help_text: str) -> Any:
    """``-o/--output``, required."""
    return click.option("-o", "--output", type=PATH, required=True, help=help_text)


force_option = click.option(
    "-f", "--force", is_flag=True, help="Do it again even when the output is up to date."
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the result's header as JSON on stdout."
)
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")


def print_header(header: Header, as_json: bool) -> None:
    """The header as JSON on stdout, when asked for."""
    if as_json:
        click.echo(json.dumps(header.to_json(), ensure_ascii=False, indent=1))


def data_options(function: Any) -> Any:
    """The options that say how data files are read."""
    for decorate in reversed(
        (
            click.option(
                "--format",
                "shape",
                default="auto",
                show_default=True,
                type=click.Choice(
                    ["auto", "messages", "sharegpt", "alpaca", "prompt-completion", "qa", "text"]
                ),
                help="Shape of the rows; detected when auto.",
            ),
            click.option(
                "--field",
                "fields",
                multiple=True,
                metavar="ROLE=COLUMN",
                help="Column of the prompt, response or system text; repeatable.",
            ),
            click.option("--split", help="Split of a Hugging Face dataset."),
            click.option("--subset", help="Configuration of a Hugging Face dataset."),
            click.option(
                "--on-bad-row",
                type=click.Choice(["fail", "skip"]),
                default="fail",
                show_default=True,
                help="Stop at unusable rows, or write them to OUTPUT.rejected.jsonl and go on.",
            ),
            click.option("--limit", type=click.IntRange(min=1), help="Read the first N rows only."),
        )
    ):
        function = decorate(function)
    return function


def parse_fields(fields: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """``("prompt=QUESTION",)`` as pairs.

    Raises:
        click.BadParameter: an entry has no ``=`` or names an unknown role.
    """
    pairs = []
    for entry in fields:
        role, equals, column = entry.partition("=")
        if not equals or not column or role not in ("prompt", "response", "system"):
            raise click.BadParameter(
                f"--field {entry!r} is not ROLE=COLUMN with role prompt, response or system"
            )
        pairs.append((role, column))
    return tuple(pairs)


def read_template(path: Path | None) -> str | None:
    """The text of ``--chat-template``.

    Raises:
        click.BadParameter: the file cannot be read.
    """
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"--chat-template {path} cannot be read ({error})") from error


def kept_stdin(data: tuple[str, ...], output: Path) -> list[str]:
    """The data's names; what comes through the pipe is kept beside the output, to be read again."""
    from formats.data import spool_stdin

    paths = list(data)
    if "-" in paths:
        kept = spool_stdin(sys.stdin.buffer, output.with_name(output.name + ".stdin.jsonl"))
        paths[paths.index("-")] = str(kept)
    return paths
