"""The learning curve: quality over the number of rows, where several fractions were compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stages.report import numbers
from stages.report.axis import Axis
from stages.report.document import Block, Chart
from stages.report.svg import COLOURS, Plot


def learning_curve(arms: Sequence[dict[str, Any]], metric: str) -> list[Block]:
    """One line per arm; nothing when no arm was trained with several numbers of rows.

    Arms of several fractions are labelled ``cluster 31 %``.
    """
    families: dict[str, list[dict[str, Any]]] = {}
    for arm in arms:
        name, _, fraction = (
            arm["arm"].rpartition(" ") if arm["arm"].endswith(" %") else ("", "", "")
        )
        family = name.rpartition(" ")[0] if fraction == "%" else arm["arm"]
        families.setdefault(family, []).append(arm)
    curves = {f: sorted(a, key=lambda arm: arm["rows"]) for f, a in families.items() if len(a) > 1}
    if not curves:
        return []
    single = [arm for found in families.values() if len(found) == 1 for arm in found]
    return [_chart(curves, single, metric)]


def _chart(
    curves: dict[str, list[dict[str, Any]]], single: list[dict[str, Any]], metric: str
) -> Chart:
    everyone = [*single, *(arm for found in curves.values() for arm in found)]
    ends = [
        arm["quality"][metric][part]
        for arm in everyone
        for part in ("mean", "low", "high")
        if arm["quality"][metric][part] is not None
    ]
    name = numbers.named(metric)
    x = Axis.of("rows", [arm["rows"] for arm in everyone], zero=True)
    plot = Plot(f"{name.capitalize()} by number of rows", x, Axis.of(name, ends))
    legend = []
    for number, (family, found) in enumerate(curves.items()):
        colour = min(number + 1, COLOURS)
        rows, mean, low, high = (
            np.array([np.nan if value is None else value for value in values], np.float64)
            for values in zip(*(_point(arm, metric) for arm in found), strict=True)
        )
        shifted = rows + (number - len(curves) / 2) * 0.004 * (x.high - x.low)
        plot.whiskers(shifted, low, high, colour)
        plot.line(shifted, mean, colour)
        plot.dots(shifted, mean, colour)
        legend.append((colour, family))
    for arm in single:
        rows, mean, low, high = _point(arm, metric)
        if low is not None:
            plot.whiskers([rows], [low], [high], 0)
        plot.dots([rows], [mean], 0)
        plot.line([x.low, x.high], [mean, mean], 0, "dash")
        legend.append((0, arm["arm"]))
    return Chart(plot.title, plot.svg(), legend, "Means over seeds with 95 % intervals.")


def _point(arm: dict[str, Any], metric: str) -> tuple[Any, Any, Any, Any]:
    found = arm["quality"][metric]
    return arm["rows"], found["mean"], found["low"], found["high"]
