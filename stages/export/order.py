"""Which rows an export holds, and in what order.

A trainer with one sequential sampler deals the file out to its ranks. In the order made here every rank
gets from it, step by step, what the allocation planned for it:

* ``batches``: consecutive runs of ``micro_batch`` rows go to ranks 0, 1, 2, ... in turn. This is how
  accelerate shards a sampler, and so what Transformers' Trainer, TRL, axolotl and LLaMA-Factory do. The
  file holds micro-batch 0 of rank 0, of rank 1, ..., then micro-batch 1 of rank 0, and so on.
* ``rows``: single rows go to the ranks in turn, as ``torch.utils.data.DistributedSampler`` without
  shuffling does. The file holds the first row of every rank's micro-batch, then the second of every rank's.

Both hold as long as micro-batches have ``micro_batch`` rows, which some do not in the last step of an
epoch, nor where a budget of tokens filled them; ``Places.exact_steps`` says for how many steps they have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from formats.allocation import Allocation, MicroBatch
from formats.errors import SettingError
from formats.selection import Selection

DEALS = ("batches", "rows")


@dataclass(frozen=True)
class Places:
    """The rows of an export in the order of its file; P of them.

    Attributes:
        row: (P) int64, rows of the dataset.
        id: (P, 16) uint8, their content hashes.
        cluster: (P) int64.
        weight: (P) float64.
        ordered: the order is a plan's, and worth keeping.
        exact_steps: optimizer steps from the beginning that a sequential sampler reproduces.
        steps: optimizer steps of the plan; 0 without one.
    """

    row: np.ndarray
    id: np.ndarray
    cluster: np.ndarray
    weight: np.ndarray
    ordered: bool
    exact_steps: int = 0
    steps: int = 0

    def __len__(self) -> int:
        return len(self.row)

    def take(self, index: np.ndarray) -> Places:
        """The places at these positions."""
        return replace(
            self,
            row=self.row[index],
            id=self.id[index],
            cluster=self.cluster[index],
            weight=self.weight[index],
        )


def of_selection(selection: Selection) -> Places:
    """By ascending row, as the selection lists them: an order that means nothing."""
    return Places(
        selection.row,
        selection.id,
        selection.cluster.astype(np.int64),
        selection.weight,
        ordered=False,
    )


def of_allocation(
    allocation: Allocation, deal: str = "batches", epoch: int | None = None
) -> Places:
    """In the order in which ``deal`` gives every rank its plan; all epochs, one after the other.

    Memory: about 60 bytes a row and epoch; one rank's file is read at a time.

    Args:
        epoch: only this one, from 0.

    Raises:
        SettingError: there is no such epoch, or no such ``deal``.
        ArtifactError: a rank's file is missing or damaged.
    """
    if deal not in DEALS:
        raise SettingError(f"deal is {deal!r}, it must be one of {', '.join(DEALS)}")
    if epoch is not None and not 0 <= epoch < allocation.epochs:
        raise SettingError(
            f"the allocation {allocation.path} has no epoch {epoch}",
            fix=f"it has {allocation.epochs}, from 0",
        )
    parts: list[tuple[np.ndarray, ...]] = []
    ragged = np.zeros(allocation.steps * allocation.accumulation, bool)
    for rank in range(allocation.ranks):
        batches = [b for b in allocation.rank(rank) if epoch is None or b.epoch == epoch]
        sizes = np.array([len(batch.rows) for batch in batches])
        line = np.array([b.step * allocation.accumulation + b.micro for b in batches])
        ragged[line[sizes != allocation.micro_batch]] = True
        parts.append((_keys(allocation, rank, deal, line, sizes), *_columns(batches)))
    key, row, identity, cluster, weight = (
        np.concatenate(part) for part in zip(*parts, strict=True)
    )
    first = 0 if epoch is None else epoch * allocation.steps_per_epoch
    steps = allocation.steps if epoch is None else allocation.steps_per_epoch
    broken = np.flatnonzero(ragged)
    exact = int(broken[0]) // allocation.accumulation - first if broken.size else steps
    places = Places(row, identity, cluster, weight, True, exact, steps)
    return places.take(np.argsort(key, kind="stable"))


def _keys(
    allocation: Allocation, rank: int, deal: str, line: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """What the rows of one rank are sorted by, among those of all."""
    lines = np.repeat(line, sizes)
    inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    if deal == "batches":
        return (lines * allocation.ranks + rank) * allocation.most_rows + inside
    return (lines * allocation.most_rows + inside) * allocation.ranks + rank


def _columns(batches: list[MicroBatch]) -> tuple[np.ndarray, ...]:
    ids = bytes.fromhex("".join(chain.from_iterable(batch.ids for batch in batches)))
    return (
        np.array([row for batch in batches for row in batch.rows], np.int64),
        np.frombuffer(ids, np.uint8).reshape(-1, 16),
        np.array([cluster for batch in batches for cluster in batch.clusters], np.int64),
        np.array([weight for batch in batches for weight in batch.weights], np.float64),
    )


def repeat(places: Places, copies: float, seed: int) -> Places:
    """Each place as many times as its weight says, and all weights 1.

    A place of weight w comes ``copies * w`` times on average, rounded down or up at random: systematic
    sampling (Madow and Madow 1944). The weights are laid end to end, cluster after cluster, in random
    order within a cluster, and a comb with teeth ``1 / copies`` apart and a random offset picks. So the
    number of copies in all, and of each cluster, is off by less than 1 as well. Places whose weight is
    below ``1 / copies`` may be left out. Copies are spread evenly over the file.

    Args:
        copies: of a place of weight 1, on average; above 0.
        seed: of order and offset; equal seeds, equal copies.

    Raises:
        SettingError: ``copies`` is not above 0, or nothing is left.
    """
    if not 0 < copies < float("inf"):
        raise SettingError(f"copies is {copies}, it must be above 0")
    random = np.random.default_rng(seed)
    order = np.lexsort((random.random(len(places)), places.cluster))
    ends = np.cumsum(copies * places.weight[order]) + random.random()
    counts = np.zeros(len(places), np.int64)
    counts[order] = np.diff(np.floor(ends), prepend=0).astype(np.int64)
    if not counts.any():
        raise SettingError(
            f"with copies {copies} no row is left", fix="give a larger number with --copies"
        )
    position = np.repeat(np.arange(len(places)), counts)
    number = np.arange(len(position)) - np.repeat(np.cumsum(counts) - counts, counts)
    spread = (position + number * len(places) / counts[position]) % len(places)
    repeated = places.take(position[np.argsort(spread, kind="stable")])
    return replace(repeated, weight=np.ones(len(repeated)), exact_steps=0)
