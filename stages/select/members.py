"""Which members of a cluster come first."""

from __future__ import annotations

import numpy as np

from formats.errors import SettingError
from stages.select.greedy import ORDERS
from stages.select.pool import Pool

_SORTED = ("farthest", "nearest", "random")
WITHIN = (*_SORTED, *ORDERS)


def preference(pool: Pool, within: str, trim: float, seed: int) -> np.ndarray:
    """Pool indices, cluster by cluster (ascending label), the preferred members first.

    Outliers come after all other distinct members and duplicates come last, so each is taken only when
    the cluster's quota cannot be met without it. Ties are broken by id.

    Args:
        pool: what there is.
        within: ``farthest`` from the centroid first (the published method), ``nearest`` first, or
            ``random``.
        trim: fraction of contents that are outliers, see ``outliers``.
        seed: of ``random``.

    Raises:
        SettingError: there is no such order.
    """
    if within == "farthest":
        wish = pool.similarity.astype(np.float64)
    elif within == "nearest":
        wish = -pool.similarity.astype(np.float64)
    elif within == "random":
        wish = pool.random_order(seed)
    else:
        raise SettingError(f"there is no order {within!r}", fix=f"use one of {', '.join(WITHIN)}")
    # The pool is sorted by id and the sort is stable: ties are broken by id.
    return np.lexsort((wish, outliers(pool, trim), pool.copy, pool.label))


def outliers(pool: Pool, trim: float) -> np.ndarray:
    """(P) bool: the least similar ``trim`` of distinct contents, and half as many at either end of the
    gradient norm: broken text, and examples that teach nothing.
    """
    similarity, norm = pool.similarity[pool.distinct], pool.norm[pool.distinct]
    if trim <= 0 or not len(norm):
        return np.zeros(len(pool), dtype=bool)
    return (
        (pool.similarity < np.quantile(similarity, trim))
        | (pool.norm < np.quantile(norm, trim / 2))
        | (pool.norm > np.quantile(norm, 1 - trim / 2))
    )


def take(pool: Pool, order: np.ndarray, quota_K: np.ndarray) -> np.ndarray:
    """The first ``quota_K[c]`` members of every cluster, in the order of ``preference``."""
    start_K = np.concatenate(([0], np.cumsum(pool.size)))[:-1]
    place = np.arange(len(order)) - start_K[pool.label[order]]
    return order[place < quota_K[pool.label[order]]]
