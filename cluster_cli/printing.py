"""How tables are printed for people: aligned columns on stdout, nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click


def rows(table: Sequence[Sequence[str]], indent: str = "") -> None:
    """Prints lines whose columns stand under one another; the last column runs free."""
    widths = [max(map(len, column)) for column in zip(*(line[:-1] for line in table), strict=True)]
    for line in table:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        click.echo((indent + "  ".join([*cells, line[-1]])).rstrip())


def as_json(value: Any) -> None:
    """Prints JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=1))
