"""A comparison by group: the deciding figure of every arm in every group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stages.report import numbers
from stages.report.axis import Axis
from stages.report.document import Block, Cell, Chart, Table
from stages.report.svg import COLOURS, Rows

SHOWN = 30  # groups in a chart


def by_group(trials: Sequence[dict[str, Any]], metric: str) -> list[Block]:
    """A chart and a table for every column the evaluations were grouped by."""
    arms = list(dict.fromkeys(trial["arm"] for trial in trials))
    columns = dict.fromkeys(column for trial in trials for column in trial["results"]["by"])
    blocks: list[Block] = []
    for column in columns:
        values, examples = _values(trials, column, metric)
        groups = sorted(examples, key=lambda group: (-examples[group], group))
        if groups:
            blocks += [
                _chart(column, groups[:SHOWN], arms, values, metric),
                _table(column, groups, arms, values, examples, metric),
            ]
    return blocks


Values = dict[tuple[str, str], list[float]]  # (group, arm): one value per seed


def _values(
    trials: Sequence[dict[str, Any]], column: str, metric: str
) -> tuple[Values, dict[str, int]]:
    """The values, and every group's number of examples."""
    values: Values = {}
    examples: dict[str, int] = {}
    for trial in trials:
        for group, figures in trial["results"]["by"].get(column, {}).items():
            if metric in figures:
                values.setdefault((group, trial["arm"]), []).append(figures[metric]["value"])
                examples[group] = figures[metric]["examples"]
    return values, examples


def _chart(column: str, groups: list[str], arms: list[str], values: Values, metric: str) -> Chart:
    means = {
        arm: np.array([np.mean(values.get((group, arm), [np.nan])) for group in groups])
        for arm in arms
    }
    shown = arms[:COLOURS]
    name = numbers.named(metric)
    plot = Rows(f"{name.capitalize()} by {column}", groups, Axis.of(name, *means.values()))
    for number, arm in enumerate(shown):
        plot.dots(means[arm], number + 1, 0.5 * ((number + 0.5) / len(shown) - 0.5))
    legend = [(number + 1, arm) for number, arm in enumerate(shown)]
    more = f" The first {len(shown)} of {len(arms)} arms." if len(arms) > len(shown) else ""
    return Chart(plot.title, plot.svg(), legend, f"Means over seeds.{more}")


def _table(
    column: str,
    groups: list[str],
    arms: list[str],
    values: Values,
    examples: dict[str, int],
    metric: str,
) -> Table:
    def cell(group: str, arm: str) -> Cell:
        found = values.get((group, arm))
        if not found:
            return numbers.NONE
        mean, digits = float(np.mean(found)), numbers.digits_of(metric)
        spread = f" ± {np.std(found, ddof=1):.{digits}f}" if len(found) > 1 else ""
        return f"{mean:.{digits}f}{spread}", mean

    rows: list[list[Cell]] = [
        [group, numbers.count(examples[group]), *(cell(group, arm) for arm in arms)]
        for group in groups
    ]
    title = f"{numbers.named(metric).capitalize()} by {column}"
    return Table(
        title, (column, "examples", *arms), rows, note="Mean ± standard deviation over seeds."
    )
