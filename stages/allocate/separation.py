"""Keeps the parts of a split cluster apart in time: at any step only one rank may work on it.

Each split cluster has, at each step, one rank whose turn it is; turns are shared as the cluster's rows
are. An example placed at a step that is not its rank's turn changes places with one of its own rank,
of nearly the same length.
"""

from __future__ import annotations

import numpy as np

from stages.allocate.shape import Shape

_GOLDEN = 0.6180339887498949
_ROUNDS = 60


def separate(
    unit: np.ndarray,
    rank: np.ndarray,
    cluster: np.ndarray,
    tokens: np.ndarray,
    shape: Shape,
    random: np.random.Generator,
) -> None:
    """Changes ``unit`` in place; what cannot be kept apart stays (a cluster larger than a rank)."""
    turns = Turns(rank, cluster, shape, random)
    if not turns.any:
        return
    by_length = np.lexsort((tokens, rank))
    place = np.empty(len(rank), dtype=np.int64)
    place[by_length] = np.arange(len(rank))
    for turn in range(_ROUNDS):
        step = unit // shape.accumulation
        wrong = np.flatnonzero(~turns.allow(np.arange(len(rank)), step))
        if not len(wrong):
            return
        reach = 2 + turn * turn // 2
        offset = random.integers(1, reach + 1, len(wrong)) * random.choice([-1, 1], len(wrong))
        partner = by_length[np.clip(place[wrong] + offset, 0, len(rank) - 1)]
        good = (
            (rank[partner] == rank[wrong])
            & turns.allow(wrong, step[partner])
            & turns.allow(partner, step[wrong])
            & turns.allow(partner, step[partner])
        )
        _, first = np.unique(partner[good], return_index=True)
        left, right = wrong[good][first], partner[good][first]
        unit[left], unit[right] = unit[right], unit[left]


class Turns:
    """Whose turn each split cluster is.

    Attributes:
        any: whether some cluster is split and small enough to be kept apart.
    """

    def __init__(
        self, rank: np.ndarray, cluster: np.ndarray, shape: Shape, random: np.random.Generator
    ) -> None:
        _, dense = np.unique(cluster, return_inverse=True)
        size = np.bincount(dense)
        pairs, of_example, rows = np.unique(
            dense.astype(np.int64) * shape.ranks + rank, return_inverse=True, return_counts=True
        )
        owner_cluster = pairs // shape.ranks
        split = np.bincount(owner_cluster, minlength=len(size)) > 1
        self._bound = (split & (size <= shape.steps * shape.per_step))[dense]
        self.any = bool(self._bound.any())
        # Each part owns the stretch of [0, 1) from begin to end.
        share = rows / size[owner_cluster]
        end = (
            np.cumsum(share)
            - (np.cumsum(share) - share)[np.searchsorted(owner_cluster, owner_cluster)]
        )
        self._begin, self._end = (end - share)[of_example], end[of_example]
        self._phase = random.random(len(size))[dense]

    def allow(self, examples: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Whether each example may stand at its step."""
        time = (step * _GOLDEN + self._phase[examples]) % 1
        inside = (self._begin[examples] <= time + 1e-12) & (time < self._end[examples] - 1e-12)
        return ~self._bound[examples] | inside
