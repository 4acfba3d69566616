"""Water-filling and its relatives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import SettingError
from stages.select.quotas import QUOTAS, appetites, fill, find_quota


def water_filling(capacity: list[int], budget: int) -> list[int]:
    """DESIGN section 6, word by word: clusters by ascending size take their equal share."""
    quota = [0] * len(capacity)
    left = len(capacity)
    for cluster in sorted(range(len(capacity)), key=lambda c: capacity[c]):
        quota[cluster] = min(capacity[cluster], budget // left)
        budget -= quota[cluster]
        left -= 1
    return quota


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.floats(0, 1))
def test_equal_appetites_are_water_filling(capacity: list[int], part: float) -> None:
    budget = round(part * sum(capacity))
    quota = fill(np.array(capacity), np.ones(len(capacity)), budget)
    assert sorted(quota.tolist()) == sorted(water_filling(capacity, budget))


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any),
    st.floats(0, 1),
    st.sampled_from(QUOTAS) | st.floats(0, 1),
    st.integers(0, 9),
)
def test_quotas_sum_to_the_budget(
    capacity: list[int], part: float, name: str | float, seed: int
) -> None:
    budget = round(part * sum(capacity))
    capacity_K = np.array(capacity)
    spread_K = np.random.default_rng(seed).uniform(0, 3, len(capacity))
    appetite_K = appetites(name, np.maximum(capacity_K, 1), spread_K)
    quota = fill(capacity_K, appetite_K, budget)
    assert quota.sum() == budget
    assert (quota >= 0).all()
    assert (quota <= capacity_K).all()
    if budget >= (capacity_K > 0).sum():
        assert (quota[capacity_K > 0] >= 1).all()
    else:
        assert quota.max() <= 1
    if name in ("equal", 0):
        open_ = quota[quota < capacity_K]
        assert len(open_) == 0 or open_.max() - open_.min() <= 1
        assert len(open_) == 0 or quota.max() - open_.min() <= 1


@pytest.mark.parametrize(
    ("power", "name"), [(0, "equal"), (0.0, "equal"), (0.5, "sqrt"), (1, "proportional")]
)
def test_a_power_that_has_a_name_is_it(power: float, name: str) -> None:
    assert find_quota(power) == find_quota(name) == name


def test_a_power_lies_between_the_names() -> None:
    # 10,000 rows and one: powers 0.25, 0.5 and 0.75 give 10, 100 and 1,000 to one.
    size = np.array([10_000, 1])
    ratios = [a / b for a, b in (appetites(p, size, np.ones(2)) for p in (0, 0.25, 0.5, 0.75, 1))]
    assert ratios == pytest.approx([1, 10, 100, 1000, 10_000])
    assert find_quota(0.75) == 0.75


@pytest.mark.parametrize("quota", ["fair", "0.5", -0.1, 1.5, float("nan")])
def test_there_is_no_other_quota(quota: str | float) -> None:
    with pytest.raises(SettingError) as error:
        find_quota(quota)
    assert str(error.value) == (
        f"there is no quota {quota!r}; use one of equal, proportional, sqrt, neyman, "
        "or a number from 0 to 1"
    )


def test_proportional() -> None:
    capacity = np.array([600, 300, 100])
    quota = fill(capacity, appetites("proportional", capacity, np.ones(3)), 100)
    assert quota.tolist() == [60, 30, 10]


def test_square_root() -> None:
    capacity = np.array([900, 400, 100])
    assert fill(capacity, appetites("sqrt", capacity, np.ones(3)), 60).tolist() == [30, 20, 10]


def test_neyman_takes_size_times_spread() -> None:
    capacity = np.array([100, 100, 100])
    quota = fill(capacity, appetites("neyman", capacity, np.array([3.0, 1.0, 0.0])), 41)
    assert quota.tolist() == [30, 10, 1]


def test_neyman_without_any_spread_is_proportional() -> None:
    capacity = np.array([60, 30, 10])
    quota = fill(capacity, appetites("neyman", capacity, np.zeros(3)), 10)
    assert quota.tolist() == [6, 3, 1]


@pytest.mark.parametrize("budget", [0, 1, 2])
def test_too_small_a_budget_takes_the_largest(budget: int) -> None:
    quota = fill(np.array([5, 9, 0, 7]), np.ones(4), budget)
    assert quota.tolist() == [0, int(budget > 0), 0, int(budget > 1)]


def test_neyman_minimises_the_variance_of_the_weighted_mean() -> None:
    """Variance is the sum of share^2 spread^2 / quota; no exchange of one example lowers it."""
    capacity = np.array([200, 150, 80, 40])
    spread = np.array([0.5, 2.0, 1.0, 3.0])
    share = capacity / capacity.sum()
    quota = fill(capacity, appetites("neyman", capacity, spread), 120)

    def variance(quota: np.ndarray) -> float:
        return float((share**2 * spread**2 / quota).sum())

    for give in range(4):
        for take in range(4):
            other = quota.copy()
            other[give] -= 1
            other[take] += 1
            if give != take and other.min() >= 1:
                assert variance(other) >= variance(quota) - 1e-6
