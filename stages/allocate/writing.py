"""Writes the ranks' files, several at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from formats import allocation
from formats.selection import Selection
from stages.allocate.deal import Deal
from stages.reporting import Reporter

_AT_ONCE = 100_000  # rows and micro-batches of a rank turned into text together
_COLUMNS = ("row", "id", "weight", "cluster", "tokens")
_WRITERS = 4  # files written at the same time, at most; arrow and the hash use no Python meanwhile


def write_ranks(
    folder: Path, chosen: Selection, deals: list[Deal], reporter: Reporter
) -> list[dict[str, Any]]:
    """Writes every rank's file into an empty folder; gives their entries for the manifest.

    Args:
        folder: ``<output>.partial``.
        chosen: the selection.
        deals: one per epoch.
        reporter: for progress.
    """
    ranks = deals[0].rows.shape[2]
    shares = [_Share.of(deal) for deal in deals]

    def write(rank: int) -> dict[str, Any]:
        return allocation.write_rank(folder, rank, _lines(chosen, shares, rank))

    files = []
    with (
        reporter.progress("allocate", ranks, "ranks") as advance,
        ThreadPoolExecutor(min(_WRITERS, os.cpu_count() or 1)) as pool,
    ):
        for entry in pool.map(write, range(ranks)):
            files.append(entry)
            advance(1)
    return files


@dataclass(frozen=True)
class _Share:
    """A deal by rank: examples, sizes as of ``Deal.by_rank``, and where each rank's examples begin."""

    example: np.ndarray
    sizes: np.ndarray
    edges: np.ndarray
    accumulation: int

    @classmethod
    def of(cls, deal: Deal) -> _Share:
        example, sizes = deal.by_rank()
        edges = np.concatenate([[0], np.cumsum(sizes.sum(axis=1, dtype=np.int64))])
        return cls(example, sizes, edges, deal.rows.shape[1])


def _lines(chosen: Selection, shares: list[_Share], rank: int) -> Iterator[bytes]:
    for epoch, share in enumerate(shares):
        examples = share.example[share.edges[rank] : share.edges[rank + 1]]
        sizes = share.sizes[rank]
        steps = len(sizes) // share.accumulation
        after = np.cumsum(sizes, dtype=np.int64)
        # An empty micro-batch is a line too.
        block = (after + np.arange(len(sizes))) // _AT_ONCE
        for low, high in pairwise([0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(sizes)]):
            part = examples[after[low] - sizes[low] : after[high - 1]]
            step, micro = np.divmod(np.arange(low, high), share.accumulation)
            yield allocation.lines(
                (np.full(high - low, epoch), epoch * steps + step, micro),
                sizes[low:high],
                {name: getattr(chosen, name)[part] for name in _COLUMNS},
            )
