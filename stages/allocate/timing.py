"""When and where every example stands, before it is sorted into a deal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stages.allocate.deal import Deal
from stages.allocate.shape import Shape


@dataclass(frozen=True)
class Timed:
    """Where every example stands, ``unit`` (M) and ``rank`` (M), and S ``steps``."""

    unit: np.ndarray
    rank: np.ndarray
    steps: int


# From a random state, another one for each epoch, and the least number of steps.
Timing = Callable[[np.random.Generator, int], Timed]


def deal_of(timed: Timed, shape: Shape, budget: int) -> Deal:
    """The examples cell by cell."""
    cells = (timed.steps, shape.accumulation, shape.ranks)
    return Deal.of(timed.unit, timed.rank, cells, batch=0 if budget else shape.batch)
