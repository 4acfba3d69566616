"""How many examples each cluster gives.

A quota grows with the cluster's *appetite* (1 for equal quotas, its size for proportional ones) until
the cluster is used up: water-filling. Every cluster gives at least one where the budget allows.

With strata the budget is shared over them first, in proportion to their rows, and every stratum shares
its part over its own clusters. Shape legend: S strata, K clusters.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from formats.errors import SettingError
from stages.select.pool import Pool
from stages.select.settings import Settings

QUOTAS = ("equal", "proportional", "sqrt", "neyman")
_POWERS = {"equal": 0.0, "sqrt": 0.5, "proportional": 1.0}


def find_quota(quota: str | float) -> str | float:
    """A quota by its one name: 0.5 is ``sqrt``.

    Raises:
        SettingError: there is no such quota.
    """
    if quota in QUOTAS:
        return quota
    if isinstance(quota, str) or not 0 <= quota <= 1:
        raise SettingError(
            f"there is no quota {quota!r}",
            fix=f"use one of {', '.join(QUOTAS)}, or a number from 0 to 1",
        )
    return next((name for name, power in _POWERS.items() if power == quota), float(quota))


def appetites(quota: str | float, size_K: np.ndarray, spread_K: np.ndarray) -> np.ndarray:
    """What quotas grow with, (K) float64, positive.

    Args:
        quota: a power of the size, from 0 to 1, or its name: ``equal`` (0, the published method), ``sqrt``,
            ``proportional`` (1); or ``neyman``: size times spread, which minimises the variance of the
            weighted mean gradient at a given budget (Neyman 1934).
        size_K: rows of each cluster, duplicates counted.
        spread_K: root mean square distance of its signatures to their mean.

    Raises:
        SettingError: there is no such quota.
    """
    quota = find_quota(quota)
    size_K = np.maximum(size_K.astype(np.float64), 1)  # an empty cluster has no capacity anyway
    if quota == "neyman":
        # A cluster without spread is known from one example; a tiny appetite keeps the sum positive.
        largest = float(spread_K.max()) or 1.0
        return size_K * np.maximum(spread_K.astype(np.float64), 1e-6 * largest)
    power = quota if isinstance(quota, float) else _POWERS[quota]
    return np.asarray(size_K**power)


def needed(pool: Pool, minimum: int) -> np.ndarray:
    """What every cluster keeps at least, (K) int64: the examples to be included, and ``minimum`` distinct
    contents where it has as many.
    """
    distinct_K = pool.count(pool.distinct).sum(axis=0)
    return np.maximum(np.minimum(minimum, distinct_K), pool.count(pool.must).sum(axis=0))


def quotas(
    pool: Pool, settings: Settings, quota: str | float, spread_K: np.ndarray
) -> Callable[[int], np.ndarray]:
    """From a number of examples to quotas, (S, K) int64, that sum to it.

    Distinct contents are shared out first; repetitions are drawn on only when the budget is larger than
    the number of distinct contents.

    Args:
        pool: what there is.
        settings: ``min_per_cluster``.
        quota: see ``appetites``.
        spread_K: likewise.

    Raises:
        SettingError: there is no such quota.
    """
    distinct_SK, must_SK = pool.count(pool.distinct), pool.count(pool.must)
    repeated_SK, nothing_SK = pool.count() - distinct_SK, np.zeros_like(must_SK)
    rows_S = np.maximum(pool.count().sum(axis=1), 1)  # a stratum may have been excluded whole
    appetite_SK = np.stack([appetites(quota, size_K, spread_K) for size_K in pool.count()])
    kept_K = needed(pool, settings.min_per_cluster)
    # Strata know nothing of each other: that no cluster is left out has to be asked for.
    each_K = needed(pool, max(1, settings.min_per_cluster))

    def share(
        capacity_SK: np.ndarray, budget: int, first_SK: np.ndarray, least_K: np.ndarray
    ) -> np.ndarray:
        """Over strata in proportion to their rows, then inside each over its clusters."""
        capacity_S = capacity_SK.sum(axis=1)
        budget_S = fill(capacity_S, rows_S, budget, first_SK.sum(axis=1))
        least_SK = _over_strata(capacity_SK, first_SK, least_K, budget_S)
        budget_S = fill(capacity_S, rows_S, budget, least_SK.sum(axis=1))
        parts = zip(capacity_SK, appetite_SK, budget_S.tolist(), least_SK, strict=True)
        return np.stack([fill(*part) for part in parts])

    def choose(count: int) -> np.ndarray:
        first = min(count, int(distinct_SK.sum()))
        least_K = each_K if each_K.sum() <= first else kept_K
        distinct = share(distinct_SK, first, must_SK, least_K)
        return distinct + share(repeated_SK, count - first, nothing_SK, nothing_SK[0])

    return choose


def _over_strata(
    capacity_SK: np.ndarray, first_SK: np.ndarray, least_K: np.ndarray, budget_S: np.ndarray
) -> np.ndarray:
    """What each cluster must give, ``least_K``, taken from its strata: (S, K), at least ``first_SK``.

    One by one from the stratum that has most of its budget left. Clusters that few strata have come
    first, so that strata exceed their budgets only where a cluster leaves no choice.
    """
    if len(budget_S) == 1:
        return least_K[None, :]
    least_SK, left_S = first_SK.copy(), budget_S - first_SK.sum(axis=1)
    for c in np.argsort((capacity_SK > 0).sum(axis=0), kind="stable"):
        for _ in range(least_K[c] - first_SK[:, c].sum()):
            able_S = least_SK[:, c] < capacity_SK[:, c]
            stratum = np.lexsort((-left_S, ~able_S))[0]
            least_SK[stratum, c] += 1
            left_S[stratum] -= 1
    return least_SK


def fill(
    capacity_K: np.ndarray,
    appetite_K: np.ndarray,
    budget: int,
    least_K: np.ndarray | None = None,
) -> np.ndarray:
    """Integer quotas that sum to the budget: ``min(capacity, max(1, least, level * appetite))``, rounded.

    With equal appetites they are DESIGN's water-filling: quotas of clusters that are not used up, and
    not held up by ``least``, differ by at most one. What rounding leaves over goes to the largest
    remainders, then to the larger clusters. With fewer examples than clusters the clusters of the
    largest appetite give one each, equal ones by capacity.

    Args:
        capacity_K: what each cluster can give, (K) integer, zeros allowed.
        appetite_K: (K) positive.
        budget: at most the sum of capacities.
        least_K: (K) integer, what each must give; zeros if None. At most its capacity; at most the
            budget together.

    Returns:
        (K) int64.
    """
    least_K = np.zeros_like(capacity_K) if least_K is None else least_K
    low_K = np.maximum(least_K, capacity_K > 0)
    spare = budget - int(least_K.sum())
    if budget < low_K.sum():
        waiting_K = low_K > least_K
        chosen = np.lexsort((-capacity_K, -appetite_K * waiting_K, ~waiting_K))[:spare]
        return least_K + np.bincount(chosen, minlength=len(capacity_K)).astype(np.int64)
    high_K = capacity_K.astype(np.float64)
    exact_K = np.clip(_level(low_K, high_K, appetite_K, budget) * appetite_K, low_K, high_K)
    quota_K = np.floor(exact_K + 1e-9).astype(np.int64)
    return _round(quota_K, exact_K, low_K, capacity_K, budget)


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
    quota_K: np.ndarray,
    exact_K: np.ndarray,
    low_K: np.ndarray,
    capacity_K: np.ndarray,
    budget: int,
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
        most = np.lexsort((capacity_K, exact_K - quota_K, quota_K <= low_K))[:-missing]
        quota_K[most] -= 1
        missing += len(most)
    return quota_K
