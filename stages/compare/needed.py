"""How many of the rows an arm needs to be nearly as good as all of them, read off its learning curve.

Between two measured fractions quality is taken to follow a straight line over the logarithm of the
fraction, which learning curves do well enough over less than a decade (power laws: Hestness et al. 2017).
Nothing is said beyond what was measured: below the smallest fraction the answer is "at most", and above the
largest the line ends at all rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from formats.comparison import interval
from formats.evaluation import LOSSES
from stages.compare.statistics import Estimate

SHARE = 0.99  # of the full arm's quality


def needed(lines: Sequence[Mapping[str, Any]], metric: str, full: str) -> list[dict[str, Any]]:
    """One entry per arm that was measured at several fractions.

    Args:
        lines: of ``stages.compare.summary.summarise``.
        metric: that decides.
        full: the arm of all rows.

    Returns:
        ``[{"arm", "rows", "share", "fractions", "quality", "needed", "at_most"}]``: all rows there are,
        measured fractions ascending with 1 as the last, the mean quality at each, and the ``Estimate`` over
        seeds of the fraction from which on quality is at least ``share`` of full; ``at_most`` where every
        seed's lies below the smallest one measured.
    """
    everything = next((line for line in lines if line["arm"] == full), None)
    if everything is None:
        return []
    arms: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        name, space, _ = line["arm"].partition(" ")
        if space:
            arms.setdefault(name, []).append(line)
    return [
        _curve(name, sorted(measured, key=lambda line: line["rows"]), everything, metric)
        for name, measured in arms.items()
        if len(measured) > 1
    ]


def _curve(
    name: str, measured: list[Mapping[str, Any]], everything: Mapping[str, Any], metric: str
) -> dict[str, Any]:
    points = [*measured, everything]
    fractions = [line["rows"] / everything["rows"] for line in points]
    by_seed = list(zip(*(line["quality"][metric]["values"] for line in points), strict=True))
    reached = [_reached(fractions, values, metric in LOSSES) for values in by_seed]
    return {
        "arm": name,
        "rows": everything["rows"],
        "share": SHARE,
        "fractions": fractions,
        "quality": [line["quality"][metric]["mean"] for line in points],
        "needed": Estimate.of(reached).to_json(),
        "at_most": max(reached) <= fractions[0],
    }


def _reached(fractions: Sequence[float], values: Sequence[float], lower: bool) -> float:
    """The fraction from which on the line through the points stays on the good side of the target."""
    # Retention of a loss is full / loss, of a share share / full (``stages.compare.summary``).
    gaps = [values[-1] / SHARE - v if lower else v - SHARE * values[-1] for v in values]
    found = fractions[0]
    for (left, before), (right, after) in pairwise(zip(fractions, gaps, strict=True)):
        if before < 0 <= after:
            part = before / (before - after)
            found = left * math.exp(part * math.log(right / left))
        elif after < 0:
            found = right
    return found


def sentences(curves: Sequence[Mapping[str, Any]]) -> list[str]:
    """The answer in words, one sentence an arm."""
    return [f"{curve['arm']}: {_sentence(curve)}" for curve in curves]


def _sentence(curve: Mapping[str, Any]) -> str:
    found, share = curve["needed"], f"{curve['share']:.0%} of full quality"
    if curve["at_most"]:
        return f"{share} with at most {found['mean']:.0%} of the rows, the smallest part measured."
    text = f"{share} from about {found['mean']:.0%} of the rows on"
    spread = interval(found)
    return f"{text} ({spread})." if spread else f"{text}; one seed shows no spread."
