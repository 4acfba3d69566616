"""Ends meetings of ranks on a cluster without making any rank wait.

Two exchanges leave the lengths of a step nearly as they are: of two examples, in one micro-batch or
nearly of one length, and of two whole micro-batches of like length, all ranks together, between two
steps. They are done when fewer examples are then away from the rank that holds most of their cluster
in that step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from stages.allocate.levels import Levels
from stages.allocate.separation import Holders

_NEIGHBOURS = 64  # examples, or micro-batches, of like length that are tried, on each side
_RATIO = 1.05  # of their lengths, at most
_ROUNDS = 3
_EFFORT = 100_000  # examples looked at, at most, or a quarter of all
_MOVE = 10  # looked at in one exchange of examples

Book = dict[int, Counter[int]]  # by cluster, how many examples each rank holds


def reconcile(
    unit: np.ndarray,
    rank: np.ndarray,
    cluster: np.ndarray,
    tokens: np.ndarray,
    levels: Levels,
    limit: np.ndarray | None = None,
) -> None:
    """Changes ``unit`` and ``rank`` in place, until no two ranks meet or nothing helps any more.

    Args:
        unit: (M) micro-batch of each example.
        rank: (M) its rank.
        cluster: (M).
        tokens: (M).
        levels: the micro-batches of the plan.
        limit: (U, R) tokens of the longest example a micro-batch can hold, changed with them; None
            without a budget.
    """
    search: _Search | None = None
    for _ in range(_ROUNDS):
        step = unit // levels.accumulation
        holders = Holders(rank, cluster, levels.ranks)
        holders.update(step)
        steps = np.unique(step[holders.meeting(step)]).tolist()
        if not steps:
            return
        search = search or _Search(unit, rank, cluster, tokens, levels, limit)
        for each in steps:
            search.improve(each)


class _Search:
    def __init__(
        self,
        unit: np.ndarray,
        rank: np.ndarray,
        cluster: np.ndarray,
        tokens: np.ndarray,
        levels: Levels,
        limit: np.ndarray | None,
    ) -> None:
        self._unit, self._rank, self._tokens, self._limit = unit, rank, tokens, limit
        self._cluster, self._accumulation = cluster, levels.accumulation
        self._by_length = np.argsort(tokens, kind="stable")
        self._place = np.empty(len(unit), dtype=np.int64)
        self._place[self._by_length] = np.arange(len(unit))
        self._members: dict[int, list[int]] = {}
        order = np.argsort(unit, kind="stable")
        self._order, self._edges = order, np.searchsorted(unit[order], np.arange(levels.count + 1))
        rows = np.diff(self._edges)
        longest = np.zeros(levels.count, dtype=np.int64)
        np.maximum.at(longest, unit, tokens)
        self._rows, self._units_by_length = rows, np.lexsort((longest, rows))
        self._unit_place = np.empty(levels.count, dtype=np.int64)
        self._unit_place[self._units_by_length] = np.arange(levels.count)
        self._books: dict[int, Book] = {}
        self._effort = max(_EFFORT, len(unit) // 4)

    def improve(self, step: int) -> None:
        """Makes exchanges as long as they help the step."""
        while self._effort > 0 and (away := self._away_examples(step)):
            if not any(map(self._move, away)) and not self._trade_units(step):
                return

    def _step(self, example: int) -> int:
        return int(self._unit[example]) // self._accumulation

    def _of_unit(self, unit: int) -> list[int]:
        if unit not in self._members:
            part = slice(self._edges[unit], self._edges[unit + 1])
            self._members[unit] = self._order[part].tolist()
        return self._members[unit]

    def _units(self, step: int) -> range:
        return range(step * self._accumulation, (step + 1) * self._accumulation)

    def _book(self, step: int) -> Book:
        if step not in self._books:
            book: Book = defaultdict(Counter)
            for unit in self._units(step):
                for example in self._of_unit(unit):
                    book[int(self._cluster[example])][int(self._rank[example])] += 1
            self._books[step] = book
        return self._books[step]

    def _away_examples(self, step: int) -> list[int]:
        """Examples of clusters that several ranks hold, on other ranks than the one with most."""
        main = {c: max(held, key=held.__getitem__) for c, held in self._book(step).items() if held}
        return [
            example
            for unit in self._units(step)
            for example in self._of_unit(unit)
            if main[int(self._cluster[example])] != self._rank[example]
        ]

    def _move(self, one: int) -> bool:
        """Exchanges an example with another, if that helps."""
        for other in self._partners(one):
            self._effort -= _MOVE
            places = {
                (self._step(each), int(self._cluster[which]))
                for each in (one, other)
                for which in (one, other)
            }
            before = sum(_away(self._book(step)[cluster]) for step, cluster in places)
            self._exchange(one, other)
            if sum(_away(self._book(step)[cluster]) for step, cluster in places) < before:
                return True
            self._exchange(one, other)
        return False

    def _partners(self, one: int) -> Iterator[int]:
        """Examples in the same micro-batch, then those of like length; only what a budget allows."""
        for other in self._of_unit(int(self._unit[one])):
            if self._rank[other] != self._rank[one] and self._fits(one, other):
                yield other
        at, length = int(self._place[one]), int(self._tokens[one])
        near = self._by_length[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS + 1]
        for other in near[np.argsort(np.abs(self._tokens[near] - length), kind="stable")].tolist():
            theirs = int(self._tokens[other])
            same = (self._unit[one], self._rank[one]) == (self._unit[other], self._rank[other])
            alike = max(length, theirs) <= _RATIO * min(length, theirs)
            if alike and not same and self._fits(one, other):
                yield other

    def _fits(self, one: int, other: int) -> bool:
        if self._limit is None:
            return True
        here, there = ((self._unit[each], self._rank[each]) for each in (one, other))
        return bool(
            self._tokens[one] <= self._limit[there] and self._tokens[other] <= self._limit[here]
        )

    def _exchange(self, one: int, other: int) -> None:
        for example, sign in ((one, -1), (other, -1)):
            self._count(example, sign)
        units = (int(self._unit[one]), int(self._unit[other]))
        if units[0] != units[1]:
            for unit, leaving, coming in ((units[0], one, other), (units[1], other, one)):
                members = self._of_unit(unit)
                members[members.index(leaving)] = coming
        for array in (self._unit, self._rank):
            array[one], array[other] = array[other], array[one]
        for example in (one, other):
            self._count(example, 1)

    def _count(self, example: int, sign: int) -> None:
        held = self._book(self._step(example))[int(self._cluster[example])]
        rank = int(self._rank[example])
        held[rank] += sign
        if not held[rank]:
            del held[rank]

    def _trade_units(self, step: int) -> bool:
        """Exchanges a micro-batch of the step with one of another step, for all ranks, if that helps."""
        for one in self._units(step):
            for other in self._like(one):
                steps = (step, other // self._accumulation)
                before = sum(self._total(each) for each in steps)
                self._swap_units(one, other)
                if sum(self._total(each) for each in steps) < before:
                    return True
                self._swap_units(one, other)
                if self._effort <= 0:
                    return False
        return False

    def _total(self, step: int) -> int:
        self._effort -= sum(len(self._of_unit(unit)) for unit in self._units(step))
        return sum(map(_away, self._book(step).values()))

    def _swap_units(self, one: int, other: int) -> None:
        first, second = self._of_unit(one), self._of_unit(other)
        self._members[one], self._members[other] = second, first
        self._unit[first], self._unit[second] = other, one
        place, order = self._unit_place, self._units_by_length
        place[one], place[other] = place[other], place[one]
        order[place[one]], order[place[other]] = one, other
        self._rows[[one, other]] = self._rows[[other, one]]
        if self._limit is not None:
            self._limit[[one, other]] = self._limit[[other, one]]
        for unit in (one, other):
            self._books.pop(unit // self._accumulation, None)

    def _like(self, unit: int) -> list[int]:
        """Micro-batches of other steps with as many rows, the nearest in length first."""
        at = int(self._unit_place[unit])
        near = self._units_by_length[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS + 1]
        near = near[np.argsort(np.abs(self._unit_place[near] - at), kind="stable")]
        good = self._rows[near] == self._rows[unit]
        good &= near // self._accumulation != unit // self._accumulation
        return near[good].tolist()


def _away(held: Counter[int]) -> int:
    """Examples on other ranks than the one with most."""
    return sum(held.values()) - max(held.values()) if held else 0
