"""The arms of a comparison beside one another: quality, differences, costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from formats.evaluation import LOSSES
from stages.report import numbers
from stages.report.axis import Axis, signed
from stages.report.document import Block, Cell, Chart, Table
from stages.report.svg import Rows
from stages.savings import as_time

Arm = dict[str, Any]


def _parts(found: Sequence[dict[str, Any] | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, low and high of each, NaN where there is none."""
    none = dict.fromkeys(("mean", "low", "high"))
    filled = [none if f is None else f for f in found]
    mean, low, high = (
        np.array([np.nan if f[part] is None else f[part] for f in filled], np.float64)
        for part in ("mean", "low", "high")
    )
    return mean, low, high


def quality(arms: Sequence[Arm], metric: str) -> list[Block]:
    """What every arm was trained on, and how good it became."""
    return [_quality_chart(arms, metric), _arms(arms), _all_figures(arms, metric)]


def _quality_chart(arms: Sequence[Arm], metric: str) -> Chart:
    mean, low, high = _parts([arm["quality"][metric] for arm in arms])
    seeds = [arm["quality"][metric]["values"] for arm in arms]
    name = numbers.named(metric)
    axis = Axis.of(name, mean, low, high, *seeds)
    plot = Rows(f"{name.capitalize()} of every arm", [arm["arm"] for arm in arms], axis)
    for values in zip(*seeds, strict=False):
        plot.dots(values, 0, 0.22)
    plot.intervals(low, high, 1, -0.12)
    plot.dots(mean, 1, -0.12)
    legend = [(1, "mean and 95 % interval"), (0, "single seeds")]
    note = f"Further {'left' if metric in LOSSES else 'right'} is better."
    return Chart(plot.title, plot.svg(), legend, note)


def _arms(arms: Sequence[Arm]) -> Table:
    """What every arm was trained on."""
    counts = ("rows", "effective_sample_size", "epochs", "steps", "training_tokens")
    rows = [(a["arm"], a["what"], *(numbers.count(a[name]) for name in counts)) for a in arms]
    head = ("arm", "what", "rows", "effective sample size", "epochs", "steps", "training tokens")
    return Table("Arms", head, rows, 2)


def _all_figures(arms: Sequence[Arm], metric: str) -> Table:
    """Every quality of every arm, the deciding one first."""
    names = [metric, *(q for q in arms[0]["quality"] if q != metric)]
    rows = [
        (arm["arm"], *(numbers.interval(arm["quality"].get(name), name) for name in names))
        for arm in arms
    ]
    note = "Means over seeds with 95 % intervals; of groups their mean and the worst one."
    return Table("Figures", ("arm", *map(numbers.named, names)), rows, note=note)


def differences(arms: Sequence[Arm], metric: str) -> list[Block]:
    """Every arm against all rows and against random ones, seed by seed."""
    blocks: list[Block] = []
    others = list(dict.fromkeys(other for arm in arms for other in arm["against"]))
    for family in dict.fromkeys(map(_family, others)):
        against = [
            (arm["arm"], found)
            for arm in arms
            for other, found in arm["against"].items()
            if _family(other) == family
        ]
        blocks.append(_gaps(family, against, metric))
    rows = [
        _gap_row(arm["arm"], other, found, metric)
        for other in others
        for arm in arms
        if (found := arm["against"].get(other)) is not None
    ]
    if rows:
        head = ("arm", "against", "better", "as good", numbers.named(metric), "quality kept")
        note = "“Unclear” means that the interval allows both; more seeds make it narrower."
        blocks.append(Table("Differences", head, rows, 4, note))
    return blocks


def _family(label: str) -> str:
    """``random`` of ``random 31 %`` and ``random+steps``: an arm is compared with its like."""
    return label.split(" ")[0].split("+")[0]


def _gaps(other: str, against: list[tuple[str, dict[str, Any]]], metric: str) -> Chart:
    mean, low, high = _parts([found["differences"][metric] for _, found in against])
    label = f"{numbers.named(metric)}, difference"
    axis = Axis.of(label, mean, low, high, [0.0], write=signed)
    plot = Rows(f"Arm minus {other}", [name for name, _ in against], axis)
    plot.mark(0.0)
    plot.intervals(low, high, 1)
    plot.dots(mean, 1)
    side = "left" if metric in LOSSES else "right"
    note = (
        f"{side.capitalize()} of zero is better than {other}; intervals that hold zero do not tell."
    )
    return Chart(plot.title, plot.svg(), (), note)


def _gap_row(arm: str, other: str, found: dict[str, Any], metric: str) -> list[Cell]:
    said = {True: "yes", False: "no", None: "unclear"}
    kept = found.get("retention")
    return [
        arm,
        other,
        said[found["better"]],
        said[found["as_good"]],
        numbers.interval(found["differences"][metric], metric, sign=True),
        numbers.NONE if not kept else numbers.share(kept),
    ]


def spending(arms: Sequence[Arm]) -> list[Block]:
    """What every arm costs and saves."""
    return [_spent(arms), _costs(arms)]


def _spent(arms: Sequence[Arm]) -> Chart:
    """Selecting and training, one behind the other."""
    selecting, training = (
        np.array([arm[name] for arm in arms]) for name in ("selecting_seconds", "training_seconds")
    )
    unit, name = next(
        (size, n)
        for size, n in ((3600, "hours"), (60, "minutes"), (1, "seconds"))
        if size == 1 or (selecting + training).max() >= 2 * size
    )
    axis = Axis.of(name, (selecting + training) / unit, zero=True)
    plot = Rows("Time of one job", [arm["arm"] for arm in arms], axis)
    plot.bars(np.zeros(len(arms)), selecting / unit, 2)
    plot.bars(selecting / unit, (selecting + training) / unit, 1)
    return Chart(plot.title, plot.svg(), [(2, "selecting"), (1, "training")])


def _costs(arms: Sequence[Arm]) -> Table:
    """What every arm costs and saves, and from when on it pays."""
    rows = [_cost_row(arm) for arm in arms]
    head = (
        *("arm", "training", "of it waiting", "selecting", "saved", "net saving", "of full"),
        *("pays from epoch", "with the same map, from job"),
    )
    note = (
        "Means over seeds. Saved: against all rows, selecting not counted; net: selecting counted."
    )
    return Table("Costs", head, rows, note=note)


def _cost_row(arm: Arm) -> list[Cell]:
    found = arm.get("savings")
    times = [numbers.seconds(arm[f"{n}_seconds"]) for n in ("training", "waiting", "selecting")]
    if found is None:
        return [arm["arm"], *times, *[numbers.NONE] * 5]
    hours = [(as_time(found[n]), found[n]) for n in ("saved_hours", "net_hours")]
    first = [_first(found[n]) for n in ("pays_from_epoch", "reused_pays_from_job")]
    return [arm["arm"], *times, *hours, numbers.share(found["net_share"]), *first]


def _first(value: int | None) -> Cell:
    return ("never", float("inf")) if value is None else numbers.count(value)
