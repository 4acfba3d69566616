"""Keeps the parts of a split cluster apart in time: at any step only one rank works on it.

Where two ranks hold the same cluster at a step, one of them exchanges its example with another of its
own, of nearly the same length, at a step where that is allowed. The nearest in length is tried first.
"""

from __future__ import annotations

import numpy as np

from stages.allocate.shape import Shape

_FARTHEST = 400  # places away in length, at most
_PASSES = 3
_EFFORT = 40_000_000  # examples of split clusters times places, at most
_GOLDEN = 0.6180339887498949


def separate(
    unit: np.ndarray, rank: np.ndarray, cluster: np.ndarray, tokens: np.ndarray, shape: Shape
) -> None:
    """Changes ``unit`` in place, until no two ranks meet or no partner is found any more.

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
    by_length = np.lexsort((tokens, rank))
    place = np.empty(len(rank), dtype=np.int64)
    place[by_length] = np.arange(len(rank))
    farthest = min(_FARTHEST, len(rank) // shape.ranks, max(8, _EFFORT // len(holders.split)))
    for _ in range(_PASSES):
        step = unit // shape.accumulation
        holders.update(step)
        meeting = holders.meeting(step)
        for offset in range(1, farthest + 1):
            for signed in (offset, -offset):
                if not len(meeting):
                    break
                partner = by_length[np.clip(place[meeting] + signed, 0, len(rank) - 1)]
                if _exchange(unit, rank, step, meeting, partner, holders):
                    step = unit // shape.accumulation
                    holders.update(step)
                    meeting = meeting[holders.meet(meeting, step[meeting])]


def meetings(unit: np.ndarray, rank: np.ndarray, cluster: np.ndarray, shape: Shape) -> int:
    """Examples whose cluster another rank holds at the same step."""
    holders = Holders(rank, cluster, shape.ranks)
    step = unit // shape.accumulation
    holders.update(step)
    return len(holders.meeting(step))


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
        split: examples of clusters that several ranks own, ascending.
    """

    def __init__(self, rank: np.ndarray, cluster: np.ndarray, ranks: int) -> None:
        self._rank, self._ranks = rank.astype(np.int64), ranks
        self._cluster = cluster.astype(np.int64)
        self._clusters = int(cluster.max(initial=0)) + 1
        owners = np.unique(self._cluster * ranks + self._rank) // ranks
        self._is_split = (np.bincount(owners, minlength=self._clusters) > 1)[self._cluster]
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

    def taken(self, examples: np.ndarray, step: np.ndarray) -> np.ndarray:
        """(n, s) bool: whether another rank holds each example's cluster at each of the steps.

        Args:
            examples: (n), all of one rank.
            step: (s).
        """
        _, first, of_example = np.unique(
            self._cluster[examples], return_index=True, return_inverse=True
        )
        blocked = [~self.free(np.full(len(step), examples[i]), step) for i in first]
        return np.array(blocked)[of_example]

    def meet(self, examples: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Whether another rank holds the cluster of each example, which stands at the given step."""
        return ~self.free(examples, step)

    def meeting(self, step: np.ndarray) -> np.ndarray:
        """Examples whose cluster another rank holds at the same step."""
        return self.split[self._others(self.split, step[self.split]) > 0]


class Turns:
    """Whose turn each split cluster is at each step: a stricter rule than ``Holders``, but one that
    ranks can follow without looking at each other.

    Turns are shared as the cluster's examples are, and spread evenly over the steps. A cluster larger
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
