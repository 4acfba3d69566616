"""A report as one HTML page that needs nothing else: style, script and drawings are inside.

Everything that is not made here is escaped. Besides, the page's own policy lets no script run but the one
below, named by its hash, and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path

from formats.artifacts import created_by
from stages.report import numbers
from stages.report.document import Block, Card, Cards, Cell, Chart, Report, Section, Table, Text

MARK = '<meta name="generator" content="cluster-cli report">'
_HASH = 64  # letters of a SHA-256
_CODE = re.compile("`([^`]+)`")


def page(report: Report) -> str:
    """The whole page."""
    style, script = _asset("page.css"), _asset("page.js")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            MARK,
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            f"style-src '{_hash(style)}'; script-src '{_hash(script)}'\">",
            f"<title>{escape(report.title)}</title>",
            f"<style>{style}</style></head>",
            "<body>",
            _head(report),
            *map(_section, report.sections),
            f"<footer>Written by {escape(created_by())}.</footer>",
            f"<script>{script}</script>",
            "</body></html>\n",
        ]
    )


@cache
def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _head(report: Report) -> str:
    figures = "".join(
        f'<div><dt>{escape(f.label)}</dt><dd class="value">{escape(f.value)}</dd>'
        f'<dd class="say">{escape(f.note)}</dd></div>'
        for f in report.figures
    )
    said = "".join(f"<li>{escape(sentence)}</li>" for sentence in report.verdicts)
    links = "".join(f'<a href="#{s.name}">{escape(s.title)}</a>' for s in report.sections)
    return (
        f'<header><h1>{escape(report.title)}</h1><p class="lead">{escape(report.lead)}</p>'
        f'<dl class="figures">{figures}</dl>'
        + (f'<h3>In short</h3><ul class="verdicts">{said}</ul>' if said else "")
        + f"<nav>{links}</nav></header>"
    )


def _section(section: Section) -> str:
    parts = []
    for charts, blocks in itertools.groupby(section.blocks, lambda b: isinstance(b, Chart)):
        inside = "\n".join(map(_block, blocks))
        parts.append(f'<div class="charts">{inside}</div>' if charts else inside)
    head = f'<section id="{section.name}"><h2>{escape(section.title)}</h2>'
    return "\n".join([head, *parts, "</section>"])


def _block(block: Block) -> str:
    if isinstance(block, Text):
        kind = ' class="warn"' if block.warning else ""
        return f"<p{kind}>{_prose(block.text)}</p>"
    if isinstance(block, Chart):
        return _chart(block)
    return _table(block) if isinstance(block, Table) else _cards(block)


def _chart(chart: Chart) -> str:
    legend = "".join(f'<li class="c{colour}">{escape(text)}</li>' for colour, text in chart.legend)
    return (
        f"<figure><figcaption>{escape(chart.title)}</figcaption>{chart.svg}"
        + (f'<ul class="legend">{legend}</ul>' if legend else "")
        + f"{_note(chart.note)}</figure>"
    )


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{_number(i, table)}>{escape(name)}</th>'
        for i, name in enumerate(table.columns)
    )
    body = "\n".join(f"<tr>{_row(row, table)}</tr>" for row in table.rows)
    return (
        f'<div class="scroll"><table><caption>{escape(table.title)}</caption><thead><tr>{head}</tr>'
        f"</thead><tbody>\n{body}</tbody></table></div>{_note(table.note)}"
    )


def _row(row: Sequence[Cell], table: Table) -> str:
    return "".join(
        f"<td{_kind(cell, i, table)}{_sorts(cell)}>{escape(numbers.words(cell))}</td>"
        for i, cell in enumerate(row)
    )


def _number(place: int, table: Table) -> str:
    return ' class="num"' if place >= table.words else ""


def _kind(cell: Cell, place: int, table: Table) -> str:
    if place >= table.words:
        return ' class="num span"' if "[" in numbers.words(cell) else ' class="num"'
    return ' class="hash"' if len(numbers.words(cell)) == _HASH else ""


def _sorts(cell: Cell) -> str:
    if isinstance(cell, str):
        return ""
    value = cell[1] if math.isfinite(cell[1]) else math.copysign(1e308, cell[1])
    return f' data-v="{value:.10g}"'


def _cards(cards: Cards) -> str:
    wide = " wide" if cards.wide else ""
    inside = "\n".join(map(_card, cards.cards))
    return (
        f'<h3>{escape(cards.title)}</h3>{_note(cards.note)}<div class="cards{wide}">{inside}</div>'
    )


def _card(card: Card) -> str:
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in card.lines)
    bar = ""
    if card.share is not None:
        bar = (
            '<svg viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">'
            f'<path class="bar c1" d="M0 0H{100 * card.share:.1f}V1H0Z"/></svg>'
        )
    return (
        f'<article class="card{" code" if card.code else ""}"><h4>{escape(card.title)}</h4>'
        f'<span class="facts">{escape(card.facts)}</span>{bar}'
        + (f"<dl>{lines}</dl>" if lines else "")
        + "</article>"
    )


def _note(text: str) -> str:
    return f'<p class="note">{_prose(text)}</p>' if text else ""


def _prose(text: str) -> str:
    """What stands between backquotes is set like code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))
