"""Puts each rank's examples anew, so that ranks do not meet on a cluster and still match in length.

One rank after the other, against what the others hold at that moment: an assignment problem (Kuhn
1955; solved by scipy) in which it costs to differ in length from the step, and far more to meet
another rank on a cluster. Long plans are cut into windows of similar lengths, and only windows in
which ranks meet are solved.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from stages.allocate.separation import Holders, Turns
from stages.allocate.shape import Shape

_WINDOW = 384  # examples assigned together
_PASSES = 2
_MEETING = 1e3  # cost; differences in length cost at most about 10
_STAY = 1e-4  # what staying is worth: a difference of 1 % in length
_MOST_WINDOWS = 200  # beyond so many, what is left is done by ``separation`` alone


def rearrange(
    unit: np.ndarray,
    rank: np.ndarray,
    cluster: np.ndarray,
    tokens: np.ndarray,
    shape: Shape,
) -> None:
    """Changes ``unit`` in place.

    Args:
        unit: (M) micro-batch of each example.
        rank: (M) its rank.
        cluster: (M).
        tokens: (M).
        shape: the plan's shape.
    """
    holders = Holders(rank, cluster, shape.ranks)
    if not len(holders.split):
        return
    length = np.log(np.maximum(tokens, 1))
    by_length = np.lexsort((tokens, rank))
    edges = np.searchsorted(rank[by_length], np.arange(shape.ranks + 1)).tolist()
    left = _MOST_WINDOWS
    for _ in range(_PASSES):
        target = _targets(unit, length, shape)
        for low, high in pairwise(edges):
            holders.update(unit // shape.accumulation)
            own = by_length[low:high]
            meets = holders.meet(own, unit[own] // shape.accumulation)
            for start in range(0, len(own), _WINDOW):
                part = slice(start, start + _WINDOW)
                if meets[part].any() and left:
                    left -= 1
                    _solve(own[part], unit, length, target, holders, shape)


def take_turns(
    unit: np.ndarray,
    rank: np.ndarray,
    cluster: np.ndarray,
    tokens: np.ndarray,
    shape: Shape,
    random: np.random.Generator,
) -> None:
    """Changes ``unit`` in place, so that split clusters follow their turns: for plans in which few
    clusters, most of them split, leave ``rearrange`` no way out.
    """
    turns = Turns(rank, cluster, shape, random)
    length = np.log(np.maximum(tokens, 1))
    by_length = np.lexsort((tokens, rank))
    edges = np.searchsorted(rank[by_length], np.arange(shape.ranks + 1)).tolist()
    target = _targets(unit, length, shape)
    for low, high in pairwise(edges):
        for start in range(low, high, _WINDOW):
            members = by_length[start : min(start + _WINDOW, high)]
            _solve(members, unit, length, target, turns, shape)


def _solve(
    members: np.ndarray,
    unit: np.ndarray,
    length: np.ndarray,
    target: np.ndarray,
    blocked: Holders | Turns,
    shape: Shape,
) -> None:
    """The best way to put the members, all of one rank, into the micro-batches they now fill."""
    from scipy.optimize import linear_sum_assignment

    slots = unit[members]
    cost = (length[members][:, None] - target[slots][None, :]) ** 2
    cost[np.arange(len(members)), np.arange(len(members))] -= _STAY
    cost += _MEETING * blocked.taken(members, slots // shape.accumulation)
    _, chosen = linear_sum_assignment(cost)
    unit[members] = slots[chosen]


def _targets(unit: np.ndarray, length: np.ndarray, shape: Shape) -> np.ndarray:
    """(U) mean logarithm of length of what stands in each micro-batch, over all ranks."""
    count = np.bincount(unit, minlength=shape.units)
    return np.bincount(unit, weights=length, minlength=shape.units) / np.maximum(count, 1)
