"""From trials to a table and to sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from formats.evaluation import LOSSES
from stages.compare.arms import FULL, RANDOM
from stages.compare.statistics import LEVEL, Estimate, better, difference, within
from stages.savings import as_time, savings

Results = Sequence[Mapping[str, Any]]

_MANY = 3  # comparisons, from which on chance has to be spoken of


def summarise(
    by_arm: Mapping[str, Results], what: Mapping[str, str], metric: str, margin: float
) -> list[dict[str, Any]]:
    """One entry per arm: quality, against the full and the random arm, cost and what it saved.

    Args:
        by_arm: the trials' results by label, one per seed, seeds in the same order everywhere.
        what: a few words about each.
        metric: of ``formats.evaluation.METRICS``, decides what is better.
        margin: how much worse than the full arm still counts as good: of its value for losses, in
            absolute terms for shares.
    """
    return [_arm(label, by_arm, what[label], metric, margin) for label in by_arm]


def _arm(
    label: str, by_arm: Mapping[str, Results], what: str, metric: str, margin: float
) -> dict[str, Any]:
    results = by_arm[label]
    first = results[0]
    line: dict[str, Any] = {
        "arm": label,
        "what": what,
        "rows": first["select"]["selected"],
        "effective_sample_size": first["select"]["effective_sample_size"],
        "epochs": first["epochs"],
        "steps": first["train"]["steps"],
        "training_tokens": _mean(r["train"]["tokens"] for r in results),
        "training_seconds": _mean(r["train"]["train_seconds"] for r in results),
        "waiting_seconds": _mean(_mean(r["train"]["wait_seconds"]) for r in results),
        "selecting_seconds": _mean(r["selecting_seconds"] for r in results),
        "quality": {
            name: Estimate.of(values).to_json() for name, values in _qualities(results).items()
        },
    }
    line["against"] = {
        other: _against(results, by_arm[other], metric, margin)
        for other in (FULL, _random_like(label))
        if other in by_arm and other != label and label != FULL
    }
    if FULL in by_arm and label != FULL and first["cost_is_known"]:
        line["savings"] = _savings(by_arm[FULL], line)
    return line


def _random_like(label: str) -> str:
    """The random arm of the same fraction and the same number of steps."""
    _, space, fraction = label.partition(" ")
    steps = "+steps" if "+steps" in label else ""
    return RANDOM + steps + space + fraction


def _qualities(results: Results) -> dict[str, list[float]]:
    """By name, one value per seed: every metric overall, and over groups the mean and the worst."""
    found: dict[str, list[float]] = {}
    for result in results:
        for name, value in _figures(result["results"]).items():
            found.setdefault(name, []).append(value)
    return {name: values for name, values in found.items() if len(values) == len(results)}


def _figures(evaluation: Mapping[str, Any]) -> dict[str, float]:
    figures = {name: figure["value"] for name, figure in evaluation["overall"].items()}
    for column, groups in evaluation["by"].items():
        for metric in evaluation["overall"]:
            values = [g[metric]["value"] for g in groups.values() if metric in g]
            if values:
                worst = max(values) if metric in LOSSES else min(values)
                figures[f"{metric}, mean over {column}"] = _mean(values)
                figures[f"{metric}, worst {column}"] = worst
    return figures


def _against(results: Results, others: Results, metric: str, margin: float) -> dict[str, Any]:
    """Differences seed by seed in every quality, and what they mean for the deciding one."""
    mine, theirs = _qualities(results), _qualities(others)
    gaps = {name: difference(mine[name], theirs[name]) for name in mine if name in theirs}
    lower = metric in LOSSES
    gap = gaps[metric]
    other = _mean(theirs[metric])
    slack = margin * abs(other) if lower else margin
    return {
        "differences": {name: gap.to_json() for name, gap in gaps.items()},
        "better": better(gap, lower),
        "as_good": within(gap, slack, lower),
        "retention": (other / _mean(mine[metric]) if lower else _mean(mine[metric]) / other)
        if other and _mean(mine[metric])
        else None,
    }


def _savings(full: Results, line: Mapping[str, Any]) -> dict[str, Any]:
    found = savings(
        _mean(r["train"]["train_seconds"] for r in full) / 3600,
        subset_hours=line["training_seconds"] / 3600,
        selection_hours=line["selecting_seconds"] / 3600,
        epochs=full[0]["epochs"],
    ).to_json()
    names = ("saved_hours", "saved_share", "speedup", "net_hours", "epochs_exact")
    return {
        **{name: found[name] for name in (*names, "pays_from_epoch", "reused_pays_from_job")},
        "net_share": found["net_hours"] / found["full_hours"],
    }


def verdicts(
    lines: Sequence[Mapping[str, Any]], metric: str, margin: float, seeds: int
) -> list[str]:
    """One plain sentence per question and arm: as good as full? better than random? did it pay?"""
    said = []
    for line in lines:
        against = line["against"]
        if FULL in against:
            said.append(f"{line['arm']}: {_as_good(against[FULL], metric, margin, seeds)}")
        for other in against:
            if other != FULL:
                said.append(f"{line['arm']}: {_better(other, against[other], metric, seeds)}")
        if "savings" in line and line["selecting_seconds"]:
            said.append(f"{line['arm']}: {_paid(line)}")
        elif FULL in against and "savings" not in line:
            said.append(
                f"{line['arm']}: what its checkpoints cost is not known: no saving is claimed."
            )
    compared = sum(other != FULL for line in lines for other in line["against"])
    if compared >= _MANY and seeds > 1:
        said.append(
            f"{compared} arms were held against random at {LEVEL:.0%} each: by chance alone "
            f"{compared * (1 - LEVEL):.2g} of them would seem to differ."
        )
    return said


def _as_good(found: Mapping[str, Any], metric: str, margin: float, seeds: int) -> str:
    gap = found["differences"][metric]
    allowed = f"{margin:.0%} of its value" if metric in LOSSES else f"{100 * margin:g} points"
    if seeds < 2:
        return f"{_gap(gap, metric)} against full; one seed shows no spread, so nothing follows."
    if found["as_good"] is True:
        return f"as good as full within {allowed} ({_gap(gap, metric)})."
    if found["better"] is False:
        return f"not as good as full: {_gap(gap, metric)}."
    return f"not distinguishable from full with {seeds} seeds: {_gap(gap, metric)}."


def _better(other: str, found: Mapping[str, Any], metric: str, seeds: int) -> str:
    gap = found["differences"][metric]
    if seeds < 2:
        return f"{_gap(gap, metric)} against {other}; one seed shows no spread, so nothing follows."
    if found["better"] is None:
        return f"not distinguishable from {other} with {seeds} seeds: {_gap(gap, metric)}."
    return f"{'better' if found['better'] else 'worse'} than {other}: {_gap(gap, metric)}."


def _gap(gap: Mapping[str, Any], metric: str) -> str:
    name, scale, digits = _unit(metric)
    text = f"{name} {gap['mean'] * scale:+.{digits}f}"
    if gap["low"] is not None:
        text += f" ({gap['low'] * scale:+.{digits}f} to {gap['high'] * scale:+.{digits}f})"
    return text


def _unit(metric: str) -> tuple[str, float, int]:
    if metric in LOSSES:
        return metric.replace("_", " "), 1.0, 4
    return f"{metric.replace('_', ' ')}, points", 100.0, 1


def _paid(line: Mapping[str, Any]) -> str:
    found = line["savings"]
    saved, net = as_time(found["saved_hours"]), as_time(abs(found["net_hours"]))
    cost = as_time(line["selecting_seconds"] / 3600)
    if found["net_hours"] > 0:
        return f"it paid: {saved} of training saved, {cost} spent on selecting, {net} won."
    if found["pays_from_epoch"] is None:
        return (
            f"it did not pay: nothing of the training time was saved, {cost} went into selecting."
        )
    again = found["reused_pays_from_job"]
    return (
        f"it did not pay: {saved} of training saved, {cost} spent on selecting, {net} lost; it would "
        f"from {found['pays_from_epoch']} epochs on, or from the {again}{_ordinal(again)} job with the "
        "same map."
    )


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def _mean(values: Any) -> float:
    listed = [float(value) for value in values]
    return math.fsum(listed) / len(listed)
