"""Which members of a cluster come first."""

from __future__ import annotations

import numpy as np

from formats.errors import SettingError
from stages.select.greedy import ORDERS
from stages.select.pool import Pool

_SORTED = ("farthest", "nearest", "random")
WITHIN = (*_SORTED, *ORDERS)


def preference(pool: Pool, within: str, trim: float, seed: int) -> np.ndarray:
    """Pool indices in the order of ``ranked``.

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
    return ranked(pool, wish, trim)


def ranked(pool: Pool, wish: np.ndarray, trim: float) -> np.ndarray:
    """Pool indices, stratum by stratum and in it cluster by cluster, those of the least wish first.

    Examples to be included come before all others. Outliers come after all other distinct members and
    repetitions come last, so each is taken only when the quota cannot be met without it.

    Args:
        pool: what there is.
        wish: (P).
        trim: fraction of contents that are outliers, see ``outliers``.
    """
    # The pool is sorted by id and the sort is stable: ties are broken by id.
    return np.lexsort((wish, outliers(pool, trim), pool.copy, ~pool.must, pool.cell))


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


def take(pool: Pool, order: np.ndarray, quota_SK: np.ndarray) -> np.ndarray:
    """The first members of every stratum and cluster in the order of ``ranked``, as many as its quota."""
    cell, quota = pool.cell[order], quota_SK.ravel()
    start = np.concatenate(([0], np.cumsum(pool.count().ravel())))[:-1]
    return order[np.arange(len(order)) - start[cell] < quota[cell]]
