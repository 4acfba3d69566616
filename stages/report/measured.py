"""What an evaluation found, overall and by group, with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from formats.evaluation import Evaluation
from stages.report import numbers
from stages.report.axis import Axis
from stages.report.document import Block, Cell, Chart, Table
from stages.report.svg import Rows

SHOWN = 30  # groups in a chart, the largest; the table has all


def main_metric(results: dict[str, Any]) -> str | None:
    """The metric that charts show; whether an answer is right says more than its loss."""
    measured = list(results["overall"])
    better = [m for m in measured if m in ("pass_at_1", "accuracy", "exact_match")]
    return (better or measured or [None])[0]


def measured(evaluation: Evaluation) -> list[Block]:
    """A chart per column of groups, and a table of everything."""
    results = evaluation.results
    metric = main_metric(results)
    blocks: list[Block] = []
    if metric is not None:
        overall = results["overall"][metric]
        blocks += [
            _chart(column, _ordered(groups), metric, overall)
            for column, groups in results["by"].items()
        ]
        blocks.append(_table(results))
    if evaluation.tasks:
        blocks.append(_tasks(evaluation.tasks))
    return blocks


def _ordered(groups: dict[str, Any]) -> list[tuple[str, Any]]:
    """The largest groups first."""
    return sorted(groups.items(), key=lambda item: (-_examples(item[1]), item[0]))


def _examples(figures: dict[str, Any]) -> int:
    return max((figure["examples"] for figure in figures.values()), default=0)


def _chart(
    column: str, groups: list[tuple[str, Any]], metric: str, overall: dict[str, Any]
) -> Chart:
    shown = [(name, found[metric]) for name, found in groups if metric in found][:SHOWN]
    value, low, high = (
        np.array([np.nan if f[part] is None else f[part] for _, f in shown], np.float64)
        for part in ("value", "low", "high")
    )
    x = Axis.of(numbers.named(metric), value, low, high, [overall["value"]])
    plot = Rows(f"{numbers.named(metric).capitalize()} by {column}", [name for name, _ in shown], x)
    plot.mark(overall["value"])
    plot.intervals(low, high, 1)
    plot.dots(value, 1)
    more = f"; the {SHOWN} largest of {len(groups):,} groups" if len(groups) > len(shown) else ""
    note = f"Bars are 95 % bootstrap intervals, the dashed line is all examples{more}."
    return Chart(plot.title, plot.svg(), (), note)


def _table(results: dict[str, Any]) -> Table:
    metrics = list(results["overall"])
    lines = [("all", "", results["overall"])]
    for column, groups in results["by"].items():
        lines += [(column, name, found) for name, found in _ordered(groups)]
    rows: list[list[Cell]] = [
        [
            column,
            name,
            numbers.count(_examples(found)),
            *(numbers.interval(found.get(metric), metric) for metric in metrics),
        ]
        for column, name, found in lines
    ]
    head = ("", "group", "examples", *map(numbers.named, metrics))
    return Table("Figures", head, rows, 2, "With 95 % bootstrap intervals over examples.")


def _tasks(tasks: dict[str, Any]) -> Table:
    rows = [
        (task, name, numbers.number(value, 4))
        for task, figures in tasks.items()
        for name, value in figures.items()
        if type(value) is float
    ]
    return Table("Tasks of the lm-evaluation-harness", ("task", "figure", "value"), rows, 2)
