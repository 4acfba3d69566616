"""Moves single examples between ranks until their lengths can be matched.

Whole clusters rarely add up to equal distributions of length, and one longer rank makes all others
wait at every step. Going from the longest example to the shortest, a rank may be ahead of or behind
its share by as many examples as lie within a tolerance of the length at hand; beyond that one of its
examples there moves to the rank that is farthest behind. ``separation`` then keeps what moved away
from its cluster at every step, so ranks still work on different lessons at any time.
"""

from __future__ import annotations

import numpy as np

from stages.allocate.shape import Shape

TOLERANCE = 0.02  # relative difference of lengths that ranks may have at one step
_BIN = 0.002  # relative width of the classes of length that are looked at together


def level_out(rank: np.ndarray, cluster: np.ndarray, tokens: np.ndarray, shape: Shape) -> int:
    """Changes ``rank`` in place; row counts stay equal. Returns how many examples moved.

    Args:
        rank: (M) owners, as many of each rank as ``shape.rank_rows`` says.
        cluster: (M).
        tokens: (M).
        shape: the plan's shape.
    """
    if shape.ranks == 1:
        return 0
    before = rank.copy()
    order = np.lexsort((cluster, -tokens))
    edges = _bins(tokens[order], shape.ranks)
    slack = _slack(tokens[order], edges, shape.ranks)
    share_R = shape.rank_rows() / shape.examples
    moved_before = np.zeros(int(cluster.max()) + 1, dtype=bool)
    ahead_R = np.zeros(shape.ranks)  # rows owned so far, minus the share of all rows so far
    for low, high, allowed in zip(edges[:-1], edges[1:], slack, strict=True):
        members = order[low:high]
        ahead_R += np.bincount(rank[members], minlength=shape.ranks) - share_R * (high - low)
        if ahead_R.max() > allowed or ahead_R.min() < -allowed:
            _exchange(rank, cluster, members, ahead_R, allowed, moved_before)
    _restore_counts(rank, order, shape)
    return int((rank != before).sum())


def _bins(tokens: np.ndarray, ranks: int) -> np.ndarray:
    """Edges of classes of descending lengths: at least one example per rank, else within ``_BIN``."""
    step = np.floor(-np.log(tokens) / _BIN)
    changes = np.flatnonzero(np.diff(step)) + 1
    # Classes smaller than a level are joined: the next edge at or after each multiple of ``ranks``.
    wanted = np.arange(ranks, len(tokens), ranks)
    wide = changes[np.searchsorted(changes, wanted[np.searchsorted(wanted, changes)[:-1]])] \
        if len(changes) > 1 and len(wanted) else changes
    return np.unique(np.concatenate(([0], wide, [len(tokens)])))
