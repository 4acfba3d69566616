"""In what order the rows of a plan go into a file, so that samplers of others deal them out as planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats.allocation import Allocation
from formats.errors import SettingError
from stages.export.order import Places, of_allocation, repeat
from tests.stages.export import places
from tests.stages.train import plans


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plans.write_data(tmp_path_factory.mktemp("order") / "data.jsonl", 60)


def write(folder: Path, data: Path, ranks: int, micro: int, accumulation: int, steps: int) -> Any:
    """A plan with every place filled, by shuffled rows."""
    rows = np.random.default_rng(ranks).permutation(ranks * micro * accumulation * steps).tolist()
    shape = (steps, ranks, accumulation, micro)
    path = folder / f"{ranks}-{micro}-{accumulation}-{steps}"
    if not path.exists():
        plans.write_allocation(path, data, np.array(rows).reshape(shape).tolist())
    return Allocation.open(path)


SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2))
MANY = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@MANY
@given(shape=SHAPES)
def test_accelerate_deals_batches_out_as_planned(
    tmp_path: Path, data: Path, shape: tuple[int, ...]
) -> None:
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler, SequentialSampler

    plan = write(tmp_path, data, *shape)
    found = of_allocation(plan)
    assert (found.exact_steps, found.steps) == (plan.steps, plan.steps)
    for rank in range(plan.ranks):
        whole = BatchSampler(SequentialSampler(range(len(found))), plan.micro_batch, False)
        mine = BatchSamplerShard(whole, plan.ranks, rank)
        got = [found.row[batch].tolist() for batch in mine]
        assert got == [batch.rows for batch in plan.rank(rank)]


@MANY
@given(shape=SHAPES)
def test_torch_deals_rows_out_as_planned(
    tmp_path: Path, data: Path, shape: tuple[int, ...]
) -> None:
    from torch.utils.data import BatchSampler, DistributedSampler

    plan = write(tmp_path, data, *shape)
    found = of_allocation(plan, "rows")
    for rank in range(plan.ranks):
        mine = DistributedSampler(range(len(found)), plan.ranks, rank, shuffle=False)  # type: ignore[arg-type]
        got = [found.row[batch].tolist() for batch in BatchSampler(mine, plan.micro_batch, False)]
        assert got == [batch.rows for batch in plan.rank(rank)]


def test_columns_and_epochs(tmp_path: Path, data: Path) -> None:
    plan = Allocation.open(places.full(tmp_path, data, epochs=2))
    both = of_allocation(plan)
    first = [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]
    assert both.row.tolist() == first * 2
    assert both.weight.tolist() == [{3: 3.0, 8: 0.5}.get(row, 1.0) for row in first] * 2
    assert both.cluster.tolist() == [row % 3 for row in first] * 2
    of_plan = {r: i for b in plan.rank(0) for r, i in zip(b.rows, b.ids, strict=True)}
    assert both.id[0].tobytes().hex() == of_plan[0]
    second = of_allocation(plan, epoch=1)
    assert second.row.tolist() == first
    assert (second.exact_steps, second.steps) == (2, 2)
    with pytest.raises(SettingError) as caught:
        of_allocation(plan, epoch=2)
    assert str(caught.value) == f"the allocation {plan.path} has no epoch 2; it has 2, from 0"
    with pytest.raises(SettingError, match="deal is 'cards', it must be one of batches, rows"):
        of_allocation(plan, "cards")


def test_how_far_a_plan_with_gaps_is_followed(tmp_path: Path, data: Path) -> None:
    gap = [*places.FULL, [[[16], []], [[17], []]]]
    plan = Allocation.open(plans.write_allocation(tmp_path / "gap", data, gap, epochs=2))
    found = of_allocation(plan)
    assert (found.exact_steps, found.steps, len(found)) == (2, 6, 36)
    found = of_allocation(plan, epoch=1)
    assert (found.exact_steps, found.steps) == (2, 3)


def made(weights: list[float], clusters: list[int]) -> Places:
    count = len(weights)
    ids = np.arange(16 * count, dtype=np.uint8).reshape(count, 16)
    row = np.arange(count)
    return Places(row, ids, np.array(clusters), np.array(weights), ordered=True)


@given(
    drawn=st.lists(st.tuples(st.floats(0.05, 5), st.integers(0, 3)), min_size=1, max_size=40),
    copies=st.sampled_from([1.0, 2.5]),
    seed=st.integers(0, 1000),
)
def test_copies_are_rounded_weights(
    drawn: list[tuple[float, int]], copies: float, seed: int
) -> None:
    weights, clusters = np.array([w for w, _ in drawn]), np.array([c for _, c in drawn])
    expected = copies * weights
    if expected.sum() < 1:  # perhaps nothing is left
        return
    found = repeat(made(weights.tolist(), clusters.tolist()), copies, seed)
    counts = np.bincount(found.row, minlength=len(weights))
    assert (np.abs(counts - expected) < 1 + 1e-9).all()
    for cluster in np.unique(clusters):
        mine = clusters == cluster
        assert abs(counts[mine].sum() - expected[mine].sum()) < 1 + 1e-9
    assert abs(counts.sum() - expected.sum()) < 1 + 1e-9
    assert (found.weight == 1).all()
    assert not found.exact_steps
    again = repeat(made(weights.tolist(), clusters.tolist()), copies, seed)
    assert (again.row == found.row).all()


def test_copies_are_right_on_average() -> None:
    """Expected number: copies x weight. 4,000 draws: the mean is off by 5 standard errors at most."""
    weights = [0.3, 1.0, 1.7, 2.25, 0.75]
    draws = [
        np.bincount(repeat(made(weights, [0, 0, 1, 1, 2]), 1.5, seed).row, minlength=5)
        for seed in range(4000)
    ]
    errors = 0.5 / np.sqrt(4000)
    assert np.abs(np.mean(draws, axis=0) - 1.5 * np.array(weights)).max() < 5 * errors


def test_copies_of_a_row_stand_apart() -> None:
    found = repeat(made([1.0] * 8 + [3.0] + [1.0] * 8, [0] * 17), 1.0, 0)
    at = np.flatnonzero(found.row == 8)
    assert len(at) == 3
    assert np.diff(at).min() >= 5
    with pytest.raises(SettingError, match="copies is 0.0, it must be above 0"):
        repeat(found, 0.0, 0)
    with pytest.raises(SettingError) as caught:
        repeat(found, 1e-9, 0)
    assert str(caught.value) == (
        "with copies 1e-09 no row is left; give a larger number with --copies"
    )
