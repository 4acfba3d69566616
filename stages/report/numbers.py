"""How figures are written in reports: the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from formats.evaluation import LOSSES
from stages.report.document import Cell
from stages.savings import as_time

NONE: Cell = ("–", float("-inf"))  # sorts first


def count(value: float) -> str:
    """1234 -> ``1,234``."""
    return f"{value:,.0f}"


def several(number: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def share(value: float) -> str:
    """0.31 -> ``31.0 %``."""
    return f"{100 * value:.1f} %"


def seconds(value: float | None) -> Cell:
    """A time to read, sorted by its seconds."""
    if value is None:
        return NONE
    return as_time(value / 3600) if value else "0 s", value


def words(cell: Cell) -> str:
    """A cell's text."""
    return cell if isinstance(cell, str) else cell[0]


def number(value: float | None, digits: int = 3, sign: bool = False) -> Cell:
    """A number with so many digits behind the point; a dash for none."""
    return NONE if value is None else (f"{value:{'+' if sign else ''}.{digits}f}", value)


def digits_of(metric: str) -> int:
    """Losses have four digits behind the point, shares three."""
    return 4 if metric.split(",")[0] in LOSSES else 3


def named(metric: str) -> str:
    """``token_loss`` -> ``token loss``."""
    return metric.replace("_", " ")


def interval(found: Mapping[str, Any] | None, metric: str, sign: bool = False) -> Cell:
    """A mean or value with its interval: ``0.4120 [0.3901, 0.4402]``."""
    if found is None:
        return NONE
    value = found["value"] if "value" in found else found["mean"]
    form = f"{'+' if sign else ''}.{digits_of(metric)}f"
    if found["low"] is None:
        return f"{value:{form}}", value
    return f"{value:{form}} [{found['low']:{form}},\u00a0{found['high']:{form}}]", value
