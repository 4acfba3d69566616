"""Keeping an older map: assign to its clusters, say how the data has drifted, grow where it must.

A row is *far* when its cosine to its own centroid is below what 99 % of the old map's rows reach. Rows
that a centroid was fitted on lie closer to it than others like them, so the old rows are measured as
if each had been left out of its own centroid.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from formats.clusters import Clusters

FAR = 0.01  # share of rows that are far when nothing has changed
_REFIT_FAR = 0.05  # share of far rows from which the map should be fitted again
_REFIT_MOVED = 0.25  # share of the mix that has moved to other clusters, likewise
_GREW = 2.0  # ratio of shares
_EXPECTED = 5  # rows a cluster must have been expected to hold for its absence to mean anything
_LISTED = 10


def threshold(old: Clusters) -> float:
    """The cosine that 99 % of the old map's rows reach, each left out of its own centroid.

    With S the sum of a cluster's unit rows, x one of them and n its size, |S| = n times the mean
    cosine, and the cosine of x to S - x is (x.S - 1) / |S - x|.
    """
    label = old.label[old.label >= 0]
    similarity = old.column("similarity")[old.label >= 0].astype(np.float64)
    size = np.bincount(label, minlength=old.clusters)
    fitted = similarity
    if old.header.stats.get("distinct", 0) <= old.header.params.get("sample", 0):
        length = np.bincount(label, weights=similarity, minlength=old.clusters)[label]
        dot = similarity * length
        rest = np.sqrt(np.maximum(length**2 - 2 * dot + 1, 1e-12))
        fitted = np.clip((dot - 1) / rest, -1, 1)
    several = size[label] > 1
    return float(np.quantile(fitted[several] if several.any() else similarity, FAR))


def drift(old: Clusters, label: np.ndarray, similarity: np.ndarray) -> dict[str, Any]:
    """How newly assigned rows differ from those of the old map.

    Args:
        old: the old map.
        label: (N') labels of clustered rows, in the old map's numbering.
        similarity: (N') cosines to those centroids.

    Returns:
        ``threshold``; ``far``: share of rows below it (0.01 when nothing changed); ``moved``: half the
        sum of absolute changes of cluster shares; ``grew``, ``vanished``: clusters; ``refit``: whether
        the map should be fitted again; ``advice``: the same in words.
    """
    limit = threshold(old)
    size = np.bincount(label, minlength=old.clusters)[: old.clusters]
    before, now = old.size / max(old.size.sum(), 1), size / max(len(label), 1)
    far = float((similarity < limit).mean())
    moved = float(np.abs(now - before).sum() / 2)
    expected = before * len(label)
    # Twice the share, and by more than three standard deviations of a count.
    grew = np.flatnonzero(
        (now > _GREW * before) & (size - expected > 3 * np.sqrt(np.maximum(expected, 1)))
    )
    vanished = np.flatnonzero((size == 0) & (expected >= _EXPECTED))
    refit = far > _REFIT_FAR or moved > _REFIT_MOVED
    return {
        "threshold": round(limit, 6),
        "far": round(far, 6),
        "moved": round(moved, 6),
        "grew": grew.tolist(),
        "vanished": vanished.tolist(),
        "refit": refit,
        "advice": _advice(far, moved, refit),
    }


def _advice(far: float, moved: float, refit: bool) -> str:
    facts = (
        f"{far:.1%} of rows are farther from their centroid than 99% of the old map's rows, "
        f"{moved:.1%} of the mix has moved to other clusters"
    )
    return (
        f"{facts}: fit the map again (--refit or --extend)" if refit else f"{facts}: the map holds"
    )


def listed(clusters: list[int]) -> str:
    """Cluster numbers for a message, the first ten of them."""
    more = f" and {len(clusters) - _LISTED} more" if len(clusters) > _LISTED else ""
    return ", ".join(map(str, clusters[:_LISTED])) + more
