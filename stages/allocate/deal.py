"""A finished plan of one epoch: which examples each micro-batch of each rank holds.

Rows of a micro-batch may differ in number, so a deal is no rectangle: it is all examples in the order
step, micro-batch, rank, and the number of them in each of these cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EMPTY = -1


@dataclass(frozen=True)
class Deal:
    """One epoch (letters: see ``shape``).

    Attributes:
        example: (M) int32 examples, cell by cell; inside a cell by ascending index.
        rows: (S, A, R) int32, how many of them each cell holds.
        batch: examples of a full step; 0 where rows follow a budget of tokens.
    """

    example: np.ndarray
    rows: np.ndarray
    batch: int = 0

    @classmethod
    def of(
        cls, unit: np.ndarray, rank: np.ndarray, shape: tuple[int, int, int], batch: int = 0
    ) -> Deal:
        """The deal in which each example stands in the given unit of the given rank.

        Args:
            unit: (M) integer, step times A plus micro-batch.
            rank: (M) integer.
            shape: (S, A, R).
            batch: see above.
        """
        cell = unit.astype(np.int64) * shape[2] + rank
        rows = np.bincount(cell, minlength=shape[0] * shape[1] * shape[2]).astype(np.int32)
        return cls(np.argsort(cell, kind="stable").astype(np.int32), rows.reshape(shape), batch)

    @classmethod
    def of_grid(cls, grid: np.ndarray) -> Deal:
        """From (S, A, R, m) example indices, ``EMPTY`` where there is none."""
        filled = grid != EMPTY
        batch = int(np.prod(grid.shape[1:]))
        return cls(grid[filled].astype(np.int32), filled.sum(axis=3).astype(np.int32), batch)

    def grid(self) -> np.ndarray:
        """(S, A, R, m) int32 example indices, filled up with ``EMPTY`` to the largest micro-batch."""
        grid = np.full((self.rows.size, int(self.rows.max(initial=0))), EMPTY, dtype=np.int32)
        grid[np.arange(grid.shape[1])[None, :] < self.rows.reshape(-1, 1)] = self.example
        return grid.reshape(*self.rows.shape, -1)

    def cell(self) -> np.ndarray:
        """(M) int64, the cell of each entry of ``example``; cells count in the order of ``rows``."""
        return np.repeat(np.arange(self.rows.size), self.rows.ravel())

    def step_rank(self) -> tuple[np.ndarray, np.ndarray]:
        """(M) int64 step and (M) int64 rank of each entry of ``example``."""
        _, accumulation, ranks = self.rows.shape
        cell = self.cell()
        return cell // (accumulation * ranks), cell % ranks

    def longest(self, tokens: np.ndarray) -> np.ndarray:
        """(S, A, R) int64, tokens of the longest example of each cell; 0 in empty ones."""
        flat = self.rows.ravel()
        filled = np.flatnonzero(flat)
        first = np.cumsum(flat, dtype=np.int64)[filled] - flat[filled]
        longest = np.zeros(flat.size, dtype=np.int64)
        if len(filled):
            longest[filled] = np.maximum.reduceat(tokens[self.example], first)
        return longest.reshape(self.rows.shape)

    def by_rank(self) -> tuple[np.ndarray, np.ndarray]:
        """(M) int32 examples, rank by rank in the order of training, and (R, S * A) int32 how many of
        them each micro-batch holds.
        """
        ranks = self.rows.shape[2]
        rank = np.tile(np.arange(ranks, dtype=np.int16), self.rows.size // ranks)
        order = np.argsort(np.repeat(rank, self.rows.ravel()), kind="stable")
        return self.example[order], np.ascontiguousarray(self.rows.reshape(-1, ranks).T)

    def rotated(self, by: int) -> Deal:
        """Rank r takes what rank r - ``by`` had."""
        ranks = self.rows.shape[2]
        if by % ranks == 0:
            return self
        cell = self.cell()
        moved = cell - cell % ranks + (cell + by) % ranks
        order = np.argsort(moved, kind="stable")
        return Deal(self.example[order], np.roll(self.rows, by, axis=2), self.batch)

    def full(self) -> np.ndarray:
        """(S) bool: steps that hold a whole batch; with a budget, those in which no cell is empty."""
        if self.batch:
            return np.equal(self.rows.sum(axis=(1, 2)), self.batch)
        return np.all(self.rows > 0, axis=(1, 2))
