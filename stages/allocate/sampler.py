"""A plan as a sampler of ``torch.utils.data``: for any training loop that can be given one.

As a batch sampler it yields the rank's micro-batches::

    sampler = AllocationSampler("allocation", rank=rank, world_size=world_size, batches=True)
    loader = DataLoader(weighted(dataset), batch_sampler=sampler, num_workers=2)
    for epoch in range(sampler.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = (batch["weight"] * losses(batch)).sum() / sampler.denominator

and as a sampler its rows one by one, for a loader that is told ``batch_size=sampler.micro_batch``.
What is yielded are row numbers that know their weight, and where they stand in the plan.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sized
from itertools import islice
from typing import Any

from torch.utils.data import Dataset, Sampler

from formats.allocation import Allocation, MicroBatch
from formats.errors import SettingError


class Row(int):
    """A row of the dataset, as a plan takes it; an int wherever an int will do.

    Attributes:
        weight: its loss weight; 0 for a row that only fills a place so that no rank falls out of step.
        cluster: its cluster.
        step: the optimizer step it belongs to, from 0 over the whole run.
    """

    weight: float
    cluster: int
    step: int

    @classmethod
    def of(cls, row: int, weight: float, cluster: int, step: int) -> Row:
        """A row with what belongs to it."""
        made = cls(row)
        made.weight, made.cluster, made.step = weight, cluster, step
        return made


class AllocationSampler(Sampler[Any]):
    """One rank's rows in the order of a plan, one epoch at a time.

    Every rank yields equally many items. Where the plan leaves a place empty, in an epoch's last step,
    a row that the rank has taken before stands in with weight 0.

    Args:
        allocation: the folder ``allocate`` wrote, or the same opened.
        rank: whose rows; 0 <= rank < world_size.
        world_size: data-parallel workers that are running.
        batches: yield lists of rows, one per micro-batch, for ``batch_sampler=``; otherwise rows, for
            ``sampler=``.

    Raises:
        ArtifactError: the plan is missing, incomplete or damaged; also while it is read.
        SettingError: the plan is made for another number of ranks, there is no such rank, or rows are
            asked for of a plan whose micro-batches differ in size.
    """

    def __init__(
        self,
        allocation: Allocation | str | os.PathLike[str],
        *,
        rank: int,
        world_size: int,
        batches: bool = False,
    ) -> None:
        opened = allocation if isinstance(allocation, Allocation) else Allocation.open(allocation)
        _check(opened, rank, world_size, batches)
        self.allocation, self.rank, self.batches = opened, rank, batches
        self.epoch = 0
        self._done = self._start = 0

    @property
    def epochs(self) -> int:
        """Epochs the plan holds."""
        return self.allocation.epochs

    @property
    def micro_batch(self) -> int:
        """Rows in a full micro-batch."""
        return self.allocation.micro_batch

    @property
    def accumulation(self) -> int:
        """Micro-batches per optimizer step."""
        return self.allocation.accumulation

    @property
    def denominator(self) -> float:
        """What a micro-batch's sum of weighted losses is divided by, the same for all: then the mean
        over ranks and accumulated micro-batches is (1/B) sum_i w_i l_i (DESIGN section 6).
        """
        return self.allocation.batch / (self.allocation.ranks * self.allocation.accumulation)

    def __len__(self) -> int:
        """Items of an epoch, the same on every rank: rows, or micro-batches."""
        units = self.allocation.steps_per_epoch * self.accumulation
        return units if self.batches else units * self.micro_batch

    def __iter__(self) -> Iterator[Any]:
        """The epoch's items; after ``load_state_dict``, once, those that were still to come."""
        self._done, self._start = self._start, 0
        for item in islice(self._items(), self._done, None):
            self._done += 1
            yield item

    def _items(self) -> Iterator[Any]:
        filler: Row | None = None
        for batch in self._micro_batches():
            rows = [Row.of(*facts, batch.step) for facts in _facts(batch)]
            if filler is None:
                filler = Row.of(int(rows[0]) if rows else 0, 0.0, -1, batch.step)
            if self.batches:
                yield rows or [filler]
            else:
                yield from rows
                yield from [filler] * (self.micro_batch - len(rows))

    def _micro_batches(self) -> Iterator[MicroBatch]:
        plan = self.allocation
        first = self.epoch * plan.steps_per_epoch
        return islice(plan.rank(self.rank, first), plan.steps_per_epoch * plan.accumulation)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration yields.

        Raises:
            SettingError: the plan has no such epoch.
        """
        if not 0 <= epoch < self.epochs:
            raise SettingError(
                f"{self.allocation.path} holds {self.epochs} epochs, 0 to {self.epochs - 1}: "
                f"there is no epoch {epoch}",
                fix=f"make a longer one with `cluster-cli allocate ... --epochs {epoch + 1}`",
                epoch=epoch,
            )
        if epoch != self.epoch:
            self._done = self._start = 0
        self.epoch = epoch

    def state_dict(self, taken: int | None = None) -> dict[str, Any]:
        """Where the sampler stands, JSON-able.

        Args:
            taken: items of this epoch that training has taken; as many as were yielded if not given,
                which is too many when the loader's workers read ahead.
        """
        done = self._done if taken is None else taken
        return {"epoch": self.epoch, "taken": done, "key": self.allocation.header.key}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where another sampler of the same plan and rank stood.

        Raises:
            SettingError: the state is of another plan.
        """
        if state["key"] != self.allocation.header.key:
            raise SettingError(
                f"the state belongs to another plan than {self.allocation.path}",
                fix="bring the old allocation back, or begin anew",
            )
        self.set_epoch(state["epoch"])
        self._done = self._start = state["taken"]


class _Weighted(Dataset[dict[str, Any]]):
    """See ``weighted``."""

    def __init__(self, dataset: Any, column: str) -> None:
        self._dataset, self._column = dataset, column

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {**self._dataset[int(row)], self._column: getattr(row, "weight", 1.0)}


def weighted(dataset: Sized, column: str = "weight") -> Dataset[dict[str, Any]]:
    """The dataset with the loss weight of each row that ``AllocationSampler`` yields as a column.

    Args:
        dataset: map-style, its examples are mappings; its rows are those that were scored.
        column: name of the weight; 1 for rows that come from elsewhere.
    """
    return _Weighted(dataset, column)


def _facts(batch: MicroBatch) -> Iterator[tuple[int, float, int]]:
    return zip(batch.rows, batch.weights, batch.clusters, strict=True)


def _check(allocation: Allocation, rank: int, world_size: int, batches: bool) -> None:
    if world_size != allocation.ranks:
        raise SettingError(
            f"{allocation.path} is made for {allocation.ranks} ranks, but {world_size} are running",
            fix=f"make one with `cluster-cli allocate ... --ranks {world_size}`",
            ranks=allocation.ranks,
            world_size=world_size,
        )
    if not 0 <= rank < world_size:
        raise SettingError(f"rank is {rank}", fix=f"give a number from 0 to {world_size - 1}")
    if not batches and allocation.most_rows != allocation.micro_batch:
        raise SettingError(
            f"the micro-batches of {allocation.path} differ in size",
            fix="use AllocationSampler(..., batches=True) as the loader's batch_sampler",
        )
