"""How many clusters? The knee of held-out similarity.

Centroids are fitted on one half of a sample and measured on the other: the mean cosine of a row to
its nearest centroid. It climbs steeply while new clusters are new lessons and flattens (or falls)
once they only describe noise. The knee is where the curve over log K stands highest above the chord
from its first to its last point (Satopaa et al. 2011), the curve being cut at its maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.cluster.assign import nearest
from stages.cluster.fit import fit, one_thread

SAMPLE = 6_000  # contents looked at, both halves together
_PER_CLUSTER = 5  # rows of the fitted half that a cluster must have on average
_SPACING = 1.35  # ratio of neighbouring K


@dataclass(frozen=True)
class Choice:
    """K and why.

    Attributes:
        clusters: the number chosen.
        reason: one line for people.
        curve: [{"clusters", "similarity"}], the held-out mean cosines.
    """

    clusters: int
    reason: str
    curve: list[dict[str, Any]]


def choose(sample_SD: np.ndarray, weight_S: np.ndarray, seed: int) -> Choice:
    """K for a sample of unit rows, float32, in an order that has nothing to do with their content."""
    fitted_SD, held_SD = sample_SD[0::2].copy(), sample_SD[1::2]
    grid = _grid(len(fitted_SD))
    if not grid:
        return Choice(
            1, f"one cluster: {len(sample_SD)} examples are too few to compare numbers", []
        )
    similarity = []
    for clusters in grid:
        centroid_KD = fit(fitted_SD, weight_S[0::2], clusters, seed, iterations=30)
        with one_thread():
            _, cosine_S = nearest(held_SD, centroid_KD)
        similarity.append(float(np.average(cosine_S, weights=weight_S[1::2])))
    at = knee(np.log(grid), np.array(similarity))
    reason = (
        f"{grid[at]} clusters: the knee of held-out similarity to the nearest centroid over "
        f"{grid[0]} to {grid[-1]} clusters ({similarity[0]:.3f} to {max(similarity):.3f}, "
        f"{similarity[at]:.3f} here)"
    )
    curve = [
        {"clusters": clusters, "similarity": round(value, 6)}
        for clusters, value in zip(grid, similarity, strict=True)
    ]
    return Choice(grid[at], reason, curve)


def knee(x: np.ndarray, y: np.ndarray) -> int:
    """Index of the point highest above the chord, on the part up to the maximum of ``y``."""
    top = int(y.argmax())
    if top == 0:
        return 0
    x, y = x[: top + 1], y[: top + 1]
    chord = y[0] + (y[-1] - y[0]) * (x - x[0]) / (x[-1] - x[0])
    # Rounded, so that a straight line gives its first point and not noise.
    return int(np.round((y - chord) / (y[-1] - y[0]), 9).argmax())


def _grid(rows: int) -> list[int]:
    grid, clusters = [], 2.0
    while round(clusters) <= rows // _PER_CLUSTER:
        grid.append(round(clusters))
        clusters = max(clusters * _SPACING, clusters + 1)
    return grid
