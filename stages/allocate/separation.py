"""Keeps the parts of a split cluster apart in time: at any step only one rank works on it.

Where two ranks hold the same cluster at a step, one of them exchanges its example with another of its
own, of nearly the same length, at a step where that is allowed. The nearest in length is tried first.
"""

from __future__ import annotations

import numpy as np

from stages.allocate.levels import Levels

_FARTHEST = 400  # places away in length, at most
_PASSES = 3
_EFFORT = 15_000_000  # examples of split clusters times places, at most


def separate(
    unit: np.ndarray,
    rank: np.ndarray,
    cluster: np.ndarray,
    tokens: np.ndarray,
    levels: Levels,
    limit: np.ndarray | None = None,
) -> None:
    """Changes ``unit`` in place, until no two ranks meet or no partner is found any more.

    Args:
        unit: (M) micro-batch of each example.
        rank: (M) its rank.
        cluster: (M).
        tokens: (M).
        levels: the micro-batches of the plan.
        limit: (U, R) tokens of the longest example a micro-batch can hold; None without a budget.
    """
    holders = Holders(rank, cluster, levels.ranks)
    if not len(holders.split):
        return
    by_length = np.lexsort((tokens, rank))
    place = np.empty(len(rank), dtype=np.int64)
    place[by_length] = np.arange(len(rank))
    farthest = min(_FARTHEST, len(rank) // levels.ranks, max(8, _EFFORT // len(holders.split)))
    for _ in range(_PASSES):
        step = unit // levels.accumulation
        holders.update(step)
        meeting = holders.meeting(step)
        for offset in range(1, farthest + 1):
            for signed in (offset, -offset):
                if not len(meeting):
                    break
                partner = by_length[np.clip(place[meeting] + signed, 0, len(rank) - 1)]
                fits = _fits(unit, rank, tokens, meeting, partner, limit)
                if _exchange(unit, rank, step, meeting[fits], partner[fits], holders):
                    step = unit // levels.accumulation
                    holders.update(step)
                    meeting = meeting[holders.meet(meeting, step[meeting])]


def _fits(
    unit: np.ndarray,
    rank: np.ndarray,
    tokens: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    limit: np.ndarray | None,
) -> np.ndarray:
    """Whether each pair, of one rank, can change places within the budget."""
    if limit is None:
        return np.ones(len(left), dtype=bool)
    return (tokens[left] <= limit[unit[right], rank[right]]) & (
        tokens[right] <= limit[unit[left], rank[left]]
    )


def _exchange(
    unit: np.ndarray,
    rank: np.ndarray,
    step: np.ndarray,
    meeting: np.ndarray,
    partner: np.ndarray,
    holders: Holders,
) -> bool:
    """Exchanges those pairs that end a meeting without beginning another; False if there are none."""
    good = (
        (rank[partner] == rank[meeting])
        & (step[partner] != step[meeting])
        & holders.free(meeting, step[partner])
        & holders.free(partner, step[meeting])
    )
    left, right = _once(meeting[good], partner[good])
    unit[left], unit[right] = unit[right], unit[left]
    return len(left) > 0


def _once(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pairs in which no example occurs that an earlier pair holds."""
    both = np.stack([left, right], axis=1).ravel()
    _, first = np.unique(both, return_index=True)
    is_first = np.zeros(len(both), dtype=bool)
    is_first[first] = True
    kept = is_first.reshape(-1, 2).all(axis=1)
    return left[kept], right[kept]


class Holders:
    """Which ranks hold which split cluster at which step.

    Attributes:
        split: examples of clusters that several ranks own and one could, ascending. Clusters larger
            than a rank are left out: ranks have to meet on them.
    """

    def __init__(self, rank: np.ndarray, cluster: np.ndarray, ranks: int) -> None:
        self._rank, self._ranks = rank.astype(np.int64), ranks
        self._cluster = cluster.astype(np.int64)
        self._clusters = int(cluster.max(initial=0)) + 1
        owners = np.unique(self._cluster * ranks + self._rank) // ranks
        several = np.bincount(owners, minlength=self._clusters) > 1
        several &= np.bincount(self._cluster, minlength=self._clusters) <= -(-len(rank) // ranks)
        self._is_split = several[self._cluster]
        self.split = np.flatnonzero(self._is_split)
        self._held = np.empty(0, dtype=np.int64)

    def _keys(self, examples: np.ndarray, step: np.ndarray) -> np.ndarray:
        return (step * self._clusters + self._cluster[examples]) * self._ranks

    def update(self, step: np.ndarray) -> None:
        """Takes note of the steps, (M), that all examples now stand at."""
        keys = self._keys(self.split, step[self.split]) + self._rank[self.split]
        keys.sort()  # faster than numpy's own unique
        self._held = keys[np.diff(keys, prepend=-1) > 0]

    def _others(self, examples: np.ndarray, step: np.ndarray) -> np.ndarray:
        """How many other ranks hold each example's cluster at the given step."""
        keys = self._keys(examples, step)
        count = np.searchsorted(self._held, keys + self._ranks) - np.searchsorted(self._held, keys)
        own = keys + self._rank[examples]
        at = np.searchsorted(self._held, own)
        return count - (self._held[np.minimum(at, len(self._held) - 1)] == own)

    def free(self, examples: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Whether no other rank holds the example's cluster at the given step."""
        return ~self._is_split[examples] | (self._others(examples, step) == 0)

    def meet(self, examples: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Whether another rank holds the cluster of each example, which stands at the given step."""
        return ~self.free(examples, step)

    def meeting(self, step: np.ndarray) -> np.ndarray:
        """Examples whose cluster another rank holds at the same step."""
        place = (
            self._held // self._ranks
        )  # of a cluster at a step, once for each rank that holds it
        met = np.unique(place[1:][place[1:] == place[:-1]])
        if not len(met):
            return met
        own = self._keys(self.split, step[self.split]) // self._ranks
        at = np.minimum(np.searchsorted(met, own), len(met) - 1)
        return self.split[met[at] == own]
