"""Levels: the micro-batches of an epoch by length, the longest first, and when each is taken.

With a fixed number of rows per micro-batch all is known beforehand. With a budget of padded tokens a
micro-batch takes as many rows as fit at the length of its longest, so the number of levels follows from
the lengths; it is filled up to whole steps by letting the last levels, of short rows, share theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.allocate.matching import shuffle_in_strata
from stages.allocate.shape import Shape


@dataclass(frozen=True)
class Levels:
    """The micro-batches of an epoch.

    Attributes:
        ranks, accumulation: of the plan.
        unit: (L) int64, the unit of each level; there are as many units as levels.
        rows: (L) int64, rows of a rank at each level, at most; with a budget, as if lengths were
            dealt out strictly in order.
        begin: (L) int64, rows of a rank at all earlier levels.
        fixed: (L, R) int64, rows of each rank at each level; None with a budget.
        budget: padded tokens of a micro-batch, 0 without.
    """

    ranks: int
    accumulation: int
    unit: np.ndarray
    rows: np.ndarray
    begin: np.ndarray
    fixed: np.ndarray | None = None
    budget: int = 0

    @classmethod
    def of_shape(cls, shape: Shape, random: np.random.Generator) -> Levels:
        """Levels of a fixed number of rows."""
        unit = shuffle_in_strata(shape.units, random)
        fixed = shape.unit_rows()[unit]
        rows = fixed.max(axis=1)
        return cls(shape.ranks, shape.accumulation, unit, rows, np.cumsum(rows) - rows, fixed)

    @classmethod
    def of_budget(
        cls,
        longest: np.ndarray,
        shape: Shape,
        budget: int,
        random: np.random.Generator,
        steps: int = 0,
    ) -> Levels:
        """As many levels as the lengths need, up to whole steps.

        Args:
            longest: (n) tokens of the longest of the j-th longest rows of all ranks, descending.
            shape: ranks and accumulation.
            budget: padded tokens of a micro-batch; a longer row has one of its own.
            random: when each level is taken.
            steps: as many at least; plans that do not deal strictly in order need a little more.
        """
        needed = len(_rows(longest, budget, 0))
        count = max(steps, -(-needed // shape.accumulation)) * shape.accumulation
        rows = _rows(longest, budget, count)
        rows = np.concatenate([rows, np.zeros(count - len(rows), dtype=np.int64)])
        unit = shuffle_in_strata(count, random)
        begin = np.cumsum(rows) - rows
        return cls(shape.ranks, shape.accumulation, unit, rows, begin, None, budget)

    @property
    def count(self) -> int:
        """L."""
        return len(self.unit)

    @property
    def steps(self) -> int:
        """S, optimizer steps in an epoch."""
        return self.count // self.accumulation

    @property
    def places(self) -> int:
        """Rows of a rank in an epoch."""
        return int(self.rows.sum())

    def room(self, level: int, longest: int, left: int) -> list[int]:
        """Rows that each rank takes at a level.

        Args:
            longest: tokens of the longest example left.
            left: examples left.
        """
        if self.fixed is not None:
            return self.fixed[level].tolist()
        share = -(-left // (self.ranks * (self.count - level)))
        rows = min(max(1, self.budget // longest), share)
        even, odd = divmod(min(left, rows * self.ranks), self.ranks)
        return [even + (rank < odd) for rank in range(self.ranks)]

    def limit(self, unit: np.ndarray, rank: np.ndarray) -> np.ndarray | None:
        """(U, R) tokens that the longest example of each micro-batch may have; None without a budget.

        Args:
            unit, rank: (M) where the examples stand.
        """
        if not self.budget:
            return None
        size = self.count * self.ranks
        rows = np.bincount(unit.astype(np.int64) * self.ranks + rank, minlength=size)
        limit = self.budget // np.maximum(rows, 1)
        limit[rows <= 1] = np.iinfo(np.int64).max  # alone, an example may be longer than the budget
        return limit.reshape(self.count, self.ranks)


def _rows(longest: np.ndarray, budget: int, count: int) -> np.ndarray:
    """(L) rows of a rank at each level; where ``count`` levels are more than enough, the last share."""
    rows: list[int] = []
    at, end = 0, len(longest)
    while at < end:
        fit = max(1, budget // int(longest[at]))
        if count:
            fit = min(fit, -(-(end - at) // max(1, count - len(rows))))
        rows.append(min(fit, end - at))
        at += rows[-1]
    return np.array(rows, dtype=np.int64)
