"""The shape of a plan: how many steps, and how many rows each micro-batch of each rank holds.

Letters used in this package: S steps of an epoch, A micro-batches a step (accumulation), R ranks,
m rows a micro-batch, M examples, K clusters. A *unit* is one of the S x A micro-batches of a rank; a *cell*
is one of the S x A x R micro-batches of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Shape:
    """What is given: M examples, R ranks, m rows in a micro-batch, A micro-batches in a step."""

    examples: int
    ranks: int
    micro_batch: int
    accumulation: int

    @property
    def per_step(self) -> int:
        """Rows of a rank in a full step."""
        return self.micro_batch * self.accumulation

    @property
    def batch(self) -> int:
        """B, the examples of a full step over all ranks."""
        return self.per_step * self.ranks

    @property
    def full_steps(self) -> int:
        """Steps without an empty place."""
        return self.examples // self.batch

    @property
    def steps(self) -> int:
        """S, optimizer steps in an epoch."""
        return -(-self.examples // self.batch)

    @property
    def units(self) -> int:
        """Micro-batches of a rank in an epoch."""
        return self.steps * self.accumulation

    def rank_rows(self) -> np.ndarray:
        """(R) int64, examples of each rank: equal, or one more on the first ranks."""
        return self.examples // self.ranks + (
            np.arange(self.ranks) < self.examples % self.ranks
        ).astype(np.int64)

    def unit_rows(self) -> np.ndarray:
        """(S * A, R) int64, rows of each micro-batch: m, but in a last, partly filled step what is left,
        shared evenly over ranks and packed into as few micro-batches as hold it.
        """
        rows = np.full((self.units, self.ranks), self.micro_batch, dtype=np.int64)
        if self.steps > self.full_steps:
            left = self.rank_rows() - self.full_steps * self.per_step
            before = self.micro_batch * np.arange(self.accumulation)[:, None]
            rows[-self.accumulation :] = np.clip(left - before, 0, self.micro_batch)
        return rows
