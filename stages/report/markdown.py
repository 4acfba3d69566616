"""A report as a short Markdown text, for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from stages.report import numbers
from stages.report.document import Cell, Report, Table

MARK = "<!-- cluster-cli report -->"
_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


def markdown(report: Report) -> str:
    """Title, key figures, verdicts and the short tables."""
    parts = [f"{MARK}\n### {_escaped(report.title)}\n", _escaped(report.lead) + "\n"]
    if report.figures:
        head = [_line(["figure", "value", ""]), "| --- | ---: | --- |"]
        lines = (_line([f.label, f.value, f.note]) for f in report.figures)
        parts.append("\n".join([*head, *lines]) + "\n")
    if report.verdicts:
        parts.append("\n".join(f"- {_escaped(said)}" for said in report.verdicts) + "\n")
    parts += [_table(table) for table in report.short]
    return "\n".join(parts)


def _table(table: Table) -> str:
    rules = ("---" if i < table.words else "---:" for i in range(len(table.columns)))
    rule = "| " + " | ".join(rules) + " |"
    rows: Iterable[Sequence[Cell]] = table.rows
    return "\n".join([_line(table.columns), rule, *map(_line, rows)]) + "\n"


def _line(cells: Sequence[Cell]) -> str:
    return "| " + " | ".join(_escaped(numbers.words(cell)) for cell in cells) + " |"


def _escaped(text: str) -> str:
    """On one line, with nothing in it that Markdown or HTML would read as markup."""
    flat = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", flat)
