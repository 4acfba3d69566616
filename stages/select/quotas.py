"""How many examples each cluster gives.

A quota grows with the cluster's *appetite* (1 for equal quotas, its size for proportional ones) until
the cluster is used up: water-filling. Every cluster gives at least one where the budget allows.
"""

from __future__ import annotations

import numpy as np

from formats.errors import SettingError

QUOTAS = ("equal", "proportional", "sqrt", "neyman")


def appetites(quota: str, size_K: np.ndarray, spread_K: np.ndarray) -> np.ndarray:
    """What quotas grow with, (K) float64, positive.

    Args:
        quota: ``equal`` (the published method), ``proportional``, ``sqrt`` of the size, or ``neyman``:
            size times spread, which minimises the variance of the weighted mean gradient at a given
            budget (Neyman 1934).
        size_K: rows of each cluster, duplicates counted.
        spread_K: root mean square distance of its signatures to their mean.

    Raises:
        SettingError: there is no such quota.
    """
    size_K = np.maximum(size_K.astype(np.float64), 1)  # an empty cluster has no capacity anyway
    if quota == "equal":
        return np.ones(len(size_K))
    if quota == "proportional":
        return size_K
    if quota == "sqrt":
        return np.sqrt(size_K)
    if quota == "neyman":
        # A cluster without spread is known from one example; a tiny appetite keeps the sum positive.
        largest = float(spread_K.max()) or 1.0
        return size_K * np.maximum(spread_K.astype(np.float64), 1e-6 * largest)
    raise SettingError(f"there is no quota {quota!r}", fix=f"use one of {', '.join(QUOTAS)}")


def fill(capacity_K: np.ndarray, appetite_K: np.ndarray, budget: int) -> np.ndarray:
    """Integer quotas that sum to the budget: ``min(capacity, max(1, level * appetite))``, rounded.

    With equal appetites they are DESIGN's water-filling: quotas of clusters that are not used up
    differ by at most one. What rounding leaves over goes to the largest remainders, then to the larger
    clusters. With fewer examples than clusters the clusters of the largest appetite give one each,
    equal ones by capacity.

    Args:
        capacity_K: what each cluster can give, (K) integer, zeros allowed.
        appetite_K: (K) positive.
        budget: at most the sum of capacities.

    Returns:
        (K) int64.
    """
    filled = capacity_K > 0
    if budget < filled.sum():
        chosen = np.lexsort((-capacity_K, -appetite_K * filled, ~filled))[:budget]
        return np.bincount(chosen, minlength=len(capacity_K)).astype(np.int64)
    low_K, high_K = filled.astype(np.float64), capacity_K.astype(np.float64)
    exact_K = np.clip(_level(low_K, high_K, appetite_K, budget) * appetite_K, low_K, high_K)
    quota_K = np.floor(exact_K + 1e-9).astype(np.int64)
    return _round(quota_K, exact_K, capacity_K, budget)


def _level(low_K: np.ndarray, high_K: np.ndarray, appetite_K: np.ndarray, budget: int) -> float:
    """The level at which clipped quotas sum to the budget, by bisection down to the last bit."""
    below, above = 0.0, float((high_K / appetite_K).max()) + 1
    for _ in range(200):
        middle = (below + above) / 2
        if middle in (below, above):
            break
        if np.clip(middle * appetite_K, low_K, high_K).sum() > budget:
            above = middle
        else:
            below = middle
    return below


def _round(
    quota_K: np.ndarray, exact_K: np.ndarray, capacity_K: np.ndarray, budget: int
) -> np.ndarray:
    missing = budget - int(quota_K.sum())
    while missing > 0:
        open_K = quota_K < capacity_K
        # Remainders that differ by less than rounding are equal: the larger cluster goes first.
        remainder = np.round(exact_K - quota_K, 6)
        best = np.lexsort((-capacity_K, -remainder, ~open_K))[: min(missing, int(open_K.sum()))]
        quota_K[best] += 1
        missing -= len(best)
    while missing < 0:
        most = np.lexsort((capacity_K, exact_K - quota_K, quota_K <= 1))[:-missing]
        quota_K[most] -= 1
        missing += len(most)
    return quota_K
