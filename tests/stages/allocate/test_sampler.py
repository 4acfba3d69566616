"""The plan in the hands of another training loop: a real DataLoader takes what the plan says."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from formats.allocation import Allocation
from formats.errors import SettingError
from stages.allocate import AllocationSampler, allocate, weighted
from tests.stages.allocate.test_allocate_stage import make


class Numbers:
    """A dataset whose example number n is {"n": n}."""

    def __len__(self) -> int:
        return 90

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"n": row}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """53 rows over 2 ranks, 3 a micro-batch, 2 micro-batches a step: 5 steps, the last one with 5 rows."""
    folder = tmp_path_factory.mktemp("plan")
    selection = make(folder, [40, 30, 20], 53)
    allocate(selection, folder / "a", ranks=2, micro_batch=3, accumulation=2, epochs=2)
    allocate(selection, folder / "b", ranks=2, accumulation=2, max_tokens_per_micro_batch=400)
    return folder / "a"


def planned(path: Path, rank: int, epoch: int) -> list[tuple[list[int], list[float]]]:
    """Rows and weights of an epoch's micro-batches."""
    batches = Allocation.open(path).rank(rank)
    return [(batch.rows, batch.weights) for batch in batches if batch.epoch == epoch]


def taken(loader: Any) -> list[tuple[list[int], list[float]]]:
    """Rows and weights of the batches that count."""
    return [(batch["n"].tolist(), batch["weight"].tolist()) for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_loader_takes_the_micro_batches_of_the_plan(path: Path, name: str, workers: int) -> None:
    path = path.with_name(name)
    for rank in range(2):
        sampler = AllocationSampler(path, rank=rank, world_size=2, batches=True)
        loader = DataLoader(weighted(Numbers()), batch_sampler=sampler, num_workers=workers)
        assert len(loader) == len(sampler) == len(planned(path, rank, 0))
        for epoch in range(sampler.epochs):
            sampler.set_epoch(epoch)
            wanted = planned(path, rank, epoch)
            for got, (rows, weights) in zip(taken(loader), wanted, strict=True):
                assert got == (rows, weights) if rows else got[1] == [0.0]


def test_row_by_row_places_are_filled_with_weight_zero(path: Path) -> None:
    seen: list[int] = []
    for rank in range(2):
        sampler = AllocationSampler(path, rank=rank, world_size=2)
        loader = DataLoader(weighted(Numbers()), sampler=sampler, batch_size=sampler.micro_batch)
        assert len(loader) == 10
        assert len(sampler) == 30
        batches = taken(loader)
        for (rows, weights), (wanted, expected) in zip(
            batches, planned(path, rank, 0), strict=True
        ):
            count = len(wanted)
            assert (rows[:count], weights[:count]) == (wanted, expected)
            assert weights[count:] == [0.0] * (3 - count)
            seen += wanted
    assert len(seen) == len(set(seen)) == 53


def test_rows_know_their_place(path: Path) -> None:
    sampler = AllocationSampler(path, rank=1, world_size=2)
    batch = next(Allocation.open(path).rank(1))
    row = next(iter(sampler))
    assert (row, row.weight, row.cluster, row.step) == (
        batch.rows[0],
        batch.weights[0],
        batch.clusters[0],
        0,
    )
    again = pickle.loads(pickle.dumps(row))  # on its way to a worker of the loader
    assert (again, again.weight) == (row, row.weight)
    assert sampler.denominator == 3


def test_the_denominator_of_a_budget(path: Path) -> None:
    sampler = AllocationSampler(path.with_name("b"), rank=0, world_size=2, batches=True)
    steps = Allocation.open(path.with_name("b")).steps_per_epoch
    assert sampler.denominator == 53 / steps / 2 / 2


@pytest.mark.parametrize("batches", [True, False])
def test_resume_in_the_middle_of_an_epoch(path: Path, batches: bool) -> None:
    def fresh() -> AllocationSampler:
        return AllocationSampler(path, rank=0, world_size=2, batches=batches)

    whole = fresh()
    whole.set_epoch(1)
    everything = list(whole)
    first = fresh()
    first.set_epoch(1)
    items = iter(first)
    begun = [next(items) for _ in range(4)]
    state = json.loads(json.dumps(first.state_dict()))
    second = fresh()
    second.load_state_dict(state)
    second.set_epoch(1)  # what a loop does anyway
    assert begun + list(second) == everything
    assert list(second) == everything  # once only


def test_resume_with_workers_that_read_ahead(path: Path) -> None:
    def loader(sampler: AllocationSampler) -> Any:
        return DataLoader(weighted(Numbers()), batch_sampler=sampler, num_workers=2)

    first = AllocationSampler(path, rank=0, world_size=2, batches=True)
    everything = taken(loader(first))
    items = iter(loader(first))
    begun = [next(items) for _ in range(3)]
    assert first.state_dict()["taken"] > 3
    second = AllocationSampler(path, rank=0, world_size=2, batches=True)
    second.load_state_dict(first.state_dict(taken=3))
    assert taken(begun) + taken(loader(second)) == everything


def test_errors(path: Path) -> None:
    with pytest.raises(SettingError) as error:
        AllocationSampler(path, rank=0, world_size=4)
    assert str(error.value) == (
        f"{path} is made for 2 ranks, but 4 are running; "
        "make one with `cluster-cli allocate ... --ranks 4`"
    )
    with pytest.raises(SettingError, match="rank is 2; give a number from 0 to 1"):
        AllocationSampler(path, rank=2, world_size=2)
    sampler = AllocationSampler(path, rank=0, world_size=2)
    with pytest.raises(SettingError) as error:
        sampler.set_epoch(2)
    assert str(error.value) == (
        f"{path} holds 2 epochs, 0 to 1: there is no epoch 2; "
        "make a longer one with `cluster-cli allocate ... --epochs 3`"
    )
    other = path.with_name("b")
    with pytest.raises(SettingError) as error:
        AllocationSampler(other, rank=0, world_size=2)
    assert str(error.value) == (
        f"the micro-batches of {other} differ in size; "
        "use AllocationSampler(..., batches=True) as the loader's batch_sampler"
    )
    budget = AllocationSampler(other, rank=0, world_size=2, batches=True)
    with pytest.raises(SettingError, match="the state belongs to another plan than .*/b; bring"):
        budget.load_state_dict(sampler.state_dict())
