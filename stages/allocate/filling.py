"""Fills micro-batches with examples of nearly equal length, each cluster on one rank at a time.

Dealt out from the longest to the shortest, every example has a natural place; if it comes later, ranks
wait for it. So it gets a due date, the last place at which it is not longer than its neighbours by more
than a tolerance, and micro-batches are filled by due date. A cluster passes through one rank at a time,
so an example is due early enough for those of its cluster that follow; with due dates corrected like
this, going by them is best (Brucker, Garey and Johnson 1977). Within the tolerance, ranks prefer what
they own.

A cluster with more examples than a rank has places must be on several ranks at once; it is cut into
parts as large as a rank and one rest, which meet as rarely as can be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

import numpy as np

from stages.allocate.levels import Levels

TOLERANCE = 0.015  # relative difference in length that is not worth moving an example for
_NEVER = 1 << 62
Entry = tuple[int, int]  # due date, piece

_SHUFFLE = 0.005  # relative difference in length that is overlooked, to vary the order


def fill(
    home: np.ndarray,
    cluster: np.ndarray,
    tokens: np.ndarray,
    levels: Levels,
    random: np.random.Generator,
    tolerance: float = TOLERANCE,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Unit and rank of each example, (M) int64 and (M) int32; None when the levels hold too little.

    Args:
        home: (M) the rank that owns each example.
        cluster: (M).
        tokens: (M).
        levels: the micro-batches to fill.
        random: other states give other orders.
        tolerance: see above.
    """
    piece = _pieces(cluster, tokens, levels.places, random)
    length = tokens * np.exp(_SHUFFLE * random.random(len(tokens)))
    natural = np.argsort(-length)
    order = natural[np.argsort(piece[natural], kind="stable")]  # by piece, each from long to short
    due, latest = _due(length, natural, order, piece, levels, tolerance)
    filler = _Filler(piece[order], home[order], tokens[order], due, latest, levels)
    if not filler.run():
        return None
    unit, rank = np.empty(len(order), dtype=np.int64), np.empty(len(order), dtype=np.int32)
    unit[order], rank[order] = filler.unit, filler.rank
    return unit, rank


def _pieces(
    cluster: np.ndarray, tokens: np.ndarray, most: int, random: np.random.Generator
) -> np.ndarray:
    """(M) int64: clusters, dense; those larger than ``most`` in parts of that size and a rest, all of
    alike lengths.
    """
    _, piece, size = np.unique(cluster, return_inverse=True, return_counts=True)
    names = len(size)
    for large in np.flatnonzero(size > most):
        members = np.flatnonzero(piece == large)
        members = members[np.lexsort((random.random(len(members)), tokens[members]))]
        parts, rest = divmod(len(members), most)
        is_rest = np.zeros(len(members), dtype=bool)
        is_rest[np.linspace(0, len(members), rest, endpoint=False).astype(np.int64)] = True
        piece[members[~is_rest]] = names + np.arange(parts * most) % parts
        names += parts
    return np.unique(piece, return_inverse=True)[1]


def _due(
    length: np.ndarray,
    natural: np.ndarray,
    order: np.ndarray,
    piece: np.ndarray,
    levels: Levels,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """When examples have to be taken, counted in the rows that a rank has taken.

    Args:
        length: (M) float64.
        natural: (M) examples from long to short.
        order: (M) examples by piece, each from long to short.
        piece: (M).
        levels: the micro-batches.
        tolerance: of length.

    Returns:
        (M) int64 due dates in ``order``, and (L) int64 until when what is due counts as near at a level.
    """
    end = levels.begin + levels.rows
    # Until when an example of each length may be taken: where lengths fall below it by the tolerance.
    descending = length[natural]
    shorter = np.searchsorted(-descending, -(descending * (1 - tolerance)), side="right")
    row = np.minimum((shorter - 1) // levels.ranks, levels.places - 1)
    until = end[np.searchsorted(end, row, side="right")]
    due = np.empty(len(length), dtype=np.int64)
    due[natural] = until
    due = due[order]
    # One row of a cluster after the other: D_i = min over j >= i of D_j - (j - i), in each piece.
    apart = piece[order] * (4 * len(length)) - np.arange(len(length))
    due = np.minimum.accumulate((due + apart)[::-1])[::-1] - apart
    first = np.minimum(levels.begin * levels.ranks, len(length) - 1)
    reach = np.minimum(shorter[first], len(length) - 1)
    return due, until[reach]


class _Filler:
    """The walk from long to short. Examples are numbered by piece, the longest of each first; pieces
    wait, by due date, in the queue of the rank that owns their next example.
    """

    def __init__(
        self,
        piece: np.ndarray,
        home: np.ndarray,
        tokens: np.ndarray,
        due: np.ndarray,
        near: np.ndarray,
        levels: Levels,
    ) -> None:
        self.unit = np.zeros(len(piece), dtype=np.int32)
        self.rank = np.zeros(len(piece), dtype=np.int32)
        # Views without copies: reading and writing single numbers is several times faster so.
        self._units, self._ranks = self.unit.data, self.rank.data
        self._home = np.ascontiguousarray(home, dtype=np.int32).data
        self._tokens = np.ascontiguousarray(tokens, dtype=np.int32).data
        self._due, self._near, self._levels = np.ascontiguousarray(due).data, near.tolist(), levels
        size = np.bincount(piece)
        self._by_size = [(int(size[p]), int(p)) for p in np.argsort(-size, kind="stable")]
        self._next = (np.cumsum(size) - size).tolist()
        self._end = np.cumsum(size).tolist()
        self._left = len(piece)
        self._queues: list[list[Entry]] = [[] for _ in range(levels.ranks)]
        for each in range(len(size)):
            self._wait(each)
        self._long = [(-self._tokens[first], p) for p, first in enumerate(self._next)]
        heapify(self._long)
        self._held: dict[int, dict[int, int]] = defaultdict(dict)

    def run(self) -> bool:
        """Fills level after level; False when examples are left over."""
        levels = self._levels
        ends, units = (levels.begin + levels.rows).tolist(), levels.unit.tolist()
        for level, (end, unit) in enumerate(zip(ends, units, strict=True)):
            if not self._left:
                break
            room = levels.room(level, self._longest() if levels.budget else 0, self._left)
            self._free = {rank: rows for rank, rows in enumerate(room) if rows}
            self._at, self._holder = unit, self._held[unit // levels.accumulation]
            held: list[Entry] = []
            self._take_forced(levels.places - end)
            self._take_urgent(end, held)
            self._take_own(self._near[level], held)
            self._take_any(held)
            self._meet(held)
            for _, piece in held:
                self._wait(piece)
            if levels.accumulation == 1:
                del self._held[unit]  # the step is over
        return not self._left

    def _longest(self) -> int:
        """Tokens of the longest example left."""
        heap = self._long
        while True:
            tokens, piece = heap[0]
            at = self._next[piece]
            if at < self._end[piece] and -tokens == self._tokens[at]:
                return self._tokens[at]
            heappop(heap)
            if at < self._end[piece]:
                heappush(heap, (-self._tokens[at], piece))

    def _wait(self, piece: int) -> None:
        """Puts a piece into the queue of its next example's owner."""
        if (at := self._next[piece]) < self._end[piece]:
            heappush(self._queues[self._home[at]], (self._due[at], piece))

    def _is_true(self, entry: Entry) -> bool:
        """Whether an entry of a queue still stands for its piece, which may have been taken by force."""
        at = self._next[entry[1]]
        return at < self._end[entry[1]] and entry[0] == self._due[at]

    def _take(self, piece: int, rank: int) -> None:
        example = self._next[piece]
        self._units[example], self._ranks[example] = self._at, rank
        self._holder[piece] = rank
        self._next[piece] = example + 1
        self._left -= 1
        if self._free[rank] == 1:
            del self._free[rank]
        else:
            self._free[rank] -= 1

    def _take_forced(self, later: int) -> None:
        """Of every piece, what later levels have no places for."""
        for size, piece in self._by_size:
            if size <= later:
                break
            before = self._next[piece]
            while self._free and self._end[piece] - self._next[piece] > later:
                rank = self._holder.get(piece, self._home[self._next[piece]])
                if rank not in self._free:
                    if piece in self._holder:
                        break
                    rank = next(iter(self._free))
                self._take(piece, rank)
            if self._next[piece] > before:
                self._wait(piece)

    def _take_urgent(self, end: int, held: list[Entry]) -> None:
        """What is due, wherever there is a place."""
        while self._free:
            urgent = [e for queue in self._queues for e in _until(queue, end) if self._is_true(e)]
            if not urgent:
                return
            for entry in sorted(urgent):
                self._offer(entry, held, end)

    def _offer(self, entry: Entry, held: list[Entry], end: int = -1) -> None:
        """Takes an entry's example on the rank that has its cluster, its owner, or any other; and
        those after it that are due up to ``end`` too.
        """
        piece = entry[1]
        rank = self._holder.get(piece, -1)
        if rank < 0 and (rank := self._home[self._next[piece]]) not in self._free:
            rank = next(iter(self._free), -1)
        if rank not in self._free:
            held.append(entry)
            return
        self._take(piece, rank)
        while rank in self._free and self._due_next(piece) <= end:
            self._take(piece, rank)
        self._wait(piece)

    def _due_next(self, piece: int) -> int:
        at = self._next[piece]
        return self._due[at] if at < self._end[piece] else _NEVER

    def _take_own(self, near: int, held: list[Entry]) -> None:
        """What ranks own, if it is near in length."""
        for rank in list(self._free):
            queue = self._queues[rank]
            while rank in self._free and queue and queue[0][0] <= near:
                entry = heappop(queue)
                if self._is_true(entry):
                    if self._holder.get(entry[1], rank) == rank:
                        self._take(entry[1], rank)
                        self._wait(entry[1])
                    else:
                        self._offer(entry, held)

    def _take_any(self, held: list[Entry]) -> None:
        """Whatever is due next, on any rank with a place left."""
        while self._free:
            first = [queue for queue in self._queues if queue]
            if not first:
                return
            entry = heappop(min(first))
            if self._is_true(entry):
                self._offer(entry, held)

    def _meet(self, held: list[Entry]) -> None:
        """Ranks have places left, but other ranks hold all that is left: there is no other way."""
        for _, piece in sorted(held):
            while self._free and self._next[piece] < self._end[piece]:
                self._take(piece, next(iter(self._free)))


def _until(queue: list[Entry], end: int) -> Iterator[Entry]:
    """Takes what is due up to ``end`` out of a queue."""
    while queue and queue[0][0] <= end:
        yield heappop(queue)
