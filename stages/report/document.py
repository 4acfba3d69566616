"""What a report consists of, before anything is written as HTML or Markdown.

All texts are plain: whoever writes them out escapes them. Only ``Chart.svg`` is markup, made and escaped by
``stages.report.svg``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Cell = str | tuple[str, float]  # a text, or a text and the number it sorts by


@dataclass(frozen=True)
class Figure:
    """A key figure: what it is called, the figure, and a few words of explanation."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Text:
    """A paragraph; ``warning`` sets it apart."""

    text: str
    warning: bool = False


@dataclass(frozen=True)
class Chart:
    """A drawing with its title, what its colours mean (colour number, text), and a note below."""

    title: str
    svg: str
    legend: Sequence[tuple[int, str]] = ()
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table whose columns can be sorted.

    Attributes:
        title: above it.
        columns: their names.
        rows: one cell per column.
        words: how many columns, from the left, hold text; the others hold numbers.
        note: below it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: int = 1
    note: str = ""


@dataclass(frozen=True)
class Card:
    """A boxed item: a title, a line of facts, and labelled lines.

    Attributes:
        share: 0 to 1, drawn as a bar; None for no bar.
        lines: (label, text).
        code: whether the texts are set like code.
    """

    title: str
    facts: str
    lines: Sequence[tuple[str, str]]
    share: float | None = None
    code: bool = False


@dataclass(frozen=True)
class Cards:
    """Cards in columns, or one below the other where they are ``wide``."""

    title: str
    cards: Sequence[Card]
    note: str = ""
    wide: bool = False


Block = Text | Chart | Table | Cards


@dataclass(frozen=True)
class Section:
    """A part of the report; neighbouring charts stand side by side."""

    name: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Report:
    """A whole report.

    Attributes:
        title, lead: what this is, in a line and in a paragraph.
        figures: the key figures.
        verdicts: sentences that answer the questions.
        sections: everything else; the short form leaves them out.
        short: the tables that belong into the short form.
    """

    title: str
    lead: str
    figures: Sequence[Figure]
    verdicts: Sequence[str]
    sections: Sequence[Section]
    short: Sequence[Table] = field(default=())
