"""Micro-batches by padded tokens instead of rows, where owners are given or do not matter.

For plans that keep clusters apart see ``filling``.
"""

from __future__ import annotations

import numpy as np

from stages.allocate.levels import Levels
from stages.allocate.shape import Shape


def matched(
    rank: np.ndarray,
    tokens: np.ndarray,
    shape: Shape,
    budget: int,
    random: np.random.Generator,
    steps: int = 0,
) -> tuple[np.ndarray, Levels]:
    """Unit of each example, (M) int64, for given owners, and the levels: the ranks sort their examples
    by length, and take equally many at the same time, as many as fit on the rank with the longest.

    Args:
        rank: (M) owner of each example; ranks own as many as ``shape.rank_rows`` says.
        tokens: (M).
        shape: ranks and accumulation.
        budget: padded tokens of a micro-batch.
        random: when each micro-batch is taken.
        steps: as many at least.
    """
    order = np.lexsort((random.random(len(rank)), -tokens, rank))
    rows = shape.rank_rows()
    place = np.arange(len(rank)) - np.repeat(np.cumsum(rows) - rows, rows)
    longest = np.zeros(int(rows.max()), dtype=np.int64)
    np.maximum.at(longest, place, tokens[order])
    levels = Levels.of_budget(longest, shape, budget, random, steps)
    unit = np.empty(len(rank), dtype=np.int64)
    unit[order] = np.repeat(levels.unit, levels.rows)[place]
    return unit, levels


def streamed(
    tokens: np.ndarray,
    shape: Shape,
    budget: int,
    random: np.random.Generator,
    steps: int = 0,
) -> tuple[np.ndarray, np.ndarray, int]:
    """The usual shuffle with the usual filling: unit (M) and rank (M) of each example, and the steps.

    One rank after the other takes from the shuffled rows until the next would exceed the budget. Where
    that fills fewer than all places of ``steps``, or of the last step, the fullest are halved.
    """
    order = random.permutation(len(tokens))
    cell = _stream(tokens[order].tolist(), budget)
    per_step = shape.ranks * shape.accumulation
    steps = max(steps, -(-(int(cell[-1]) + 1) // per_step))
    while (missing := steps * per_step - int(cell[-1]) - 1) and len(cell) > cell[-1] + 1:
        cell = _halved(cell, missing)
    unit, rank = np.empty(len(tokens), dtype=np.int64), np.empty(len(tokens), dtype=np.int32)
    unit[order], rank[order] = cell // shape.ranks, cell % shape.ranks
    return unit, rank, steps


def _stream(lengths: list[int], budget: int) -> np.ndarray:
    """(M) ascending numbers: which micro-batch each row goes into."""
    cell = np.empty(len(lengths), dtype=np.int64)
    cells = cell.data
    current, rows, longest = -1, 0, budget + 1
    for at, length in enumerate(lengths):
        longest = max(longest, length)
        if (rows + 1) * longest > budget:
            current, rows, longest = current + 1, 0, length
        rows += 1
        cells[at] = current
    return cell


def _halved(cell: np.ndarray, count: int) -> np.ndarray:
    """The numbering after up to ``count`` of the fullest micro-batches were cut in two."""
    rows = np.bincount(cell)
    cut = np.argsort(-rows, kind="stable")[:count]
    cut = cut[rows[cut] > 1]
    first = np.cumsum(rows) - rows
    new = np.diff(cell, prepend=-1) > 0
    new[first[cut] + rows[cut] // 2] = True
    return np.cumsum(new) - 1
