"""Turns: when each rank may hold its part of a split cluster.

Parts of one cluster share out the steps among themselves, so ranks need not look at each other. Each
rank then solves an assignment problem (Kuhn 1955; solved by scipy) in which it costs to differ in
length from the step, and far more to hold a cluster out of turn. This keeps owners as they are, and
clusters apart, where few clusters leave no other way; what it costs is balance.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from stages.allocate.shape import Shape

_WINDOW = 384  # examples assigned together
_MEETING = 1e3  # cost; differences in length cost at most about 10
_STAY = 1e-4  # what staying is worth: a difference of 1 % in length
_GOLDEN = 0.6180339887498949  # its multiples, modulo 1, fill the interval evenly (Kronecker)


def take_turns(
    unit: np.ndarray,
    rank: np.ndarray,
    cluster: np.ndarray,
    tokens: np.ndarray,
    shape: Shape,
    random: np.random.Generator,
) -> None:
    """Changes ``unit`` in place, so that split clusters follow their turns.

    Args:
        unit: (M) micro-batch of each example.
        rank: (M) its rank.
        cluster: (M).
        tokens: (M).
        shape: the plan's shape.
        random: whose turn is first.
    """
    turns = _Turns(rank, cluster, shape, random)
    length = np.log(np.maximum(tokens, 1))
    by_length = np.lexsort((tokens, rank))
    edges = np.searchsorted(rank[by_length], np.arange(shape.ranks + 1)).tolist()
    count = np.bincount(unit, minlength=shape.units)
    target = np.bincount(unit, weights=length, minlength=shape.units) / np.maximum(count, 1)
    for low, high in pairwise(edges):
        for start in range(low, high, _WINDOW):
            members = by_length[start : min(start + _WINDOW, high)]
            _solve(members, unit, length, target, turns, shape)


def _solve(
    members: np.ndarray,
    unit: np.ndarray,
    length: np.ndarray,
    target: np.ndarray,
    turns: _Turns,
    shape: Shape,
) -> None:
    """The best way to put the members, all of one rank, into the micro-batches they now fill."""
    from scipy.optimize import linear_sum_assignment

    slots = unit[members]
    cost = (length[members][:, None] - target[slots][None, :]) ** 2
    cost[np.arange(len(members)), np.arange(len(members))] -= _STAY
    cost += _MEETING * turns.taken(members, slots // shape.accumulation)
    _, chosen = linear_sum_assignment(cost)
    unit[members] = slots[chosen]


class _Turns:
    """Turns are shared as the cluster's examples are, and spread evenly over the steps. A cluster larger
    than a rank has none: it must be on several ranks at once.
    """

    def __init__(
        self, rank: np.ndarray, cluster: np.ndarray, shape: Shape, random: np.random.Generator
    ) -> None:
        size = np.bincount(cluster)
        pairs, self._part, rows = np.unique(
            cluster.astype(np.int64) * shape.ranks + rank, return_inverse=True, return_counts=True
        )
        owner = pairs // shape.ranks
        parts = np.bincount(owner, minlength=len(size))[owner]
        self._bound = (parts > 1) & (size[owner] <= shape.steps * shape.per_step)
        before = np.cumsum(rows) - rows
        self._begin = (before - before[np.searchsorted(owner, owner)]) / size[owner]
        self._end = self._begin + rows / size[owner]
        self._phase = random.random(len(size))[owner]

    def taken(self, examples: np.ndarray, step: np.ndarray) -> np.ndarray:
        """(n, s) bool: whether it is another rank's turn, for each example at each of the steps."""
        part = self._part[examples][:, None]
        time = (step[None, :] * _GOLDEN + self._phase[part]) % 1
        inside = (self._begin[part] <= time) & (time < self._end[part])
        return self._bound[part] & ~inside
