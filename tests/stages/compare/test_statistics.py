"""Intervals over seeds against scipy, and what may be said about them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.compare.statistics import Estimate, better, difference, within

numbers = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8)


@settings(deadline=None)
@given(numbers)
def test_the_interval_is_students(values: list[float]) -> None:
    from scipy.stats import ttest_1samp

    found = Estimate.of(values)
    if found.deviation == 0:
        assert found.low == found.high == found.mean
        return
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(
        (expected.low, expected.high), rel=1e-6, abs=1e-9
    )


def test_one_seed_has_no_interval_and_says_nothing() -> None:
    found = Estimate.of([0.5])
    assert (found.deviation, found.low, found.high) == (None, None, None)
    assert better(found, True) is None
    assert within(found, 1.0, True) is None


@settings(deadline=None)
@given(numbers, st.floats(-100, 100))
def test_what_two_arms_share_in_a_seed_cancels(values: list[float], shift: float) -> None:
    gap = difference([value + shift for value in values], values)
    assert gap.mean == pytest.approx(shift, abs=1e-9)
    assert gap.deviation == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("values", "lower", "expected"),
    [
        ([-1.0, -1.1, -0.9], True, True),
        ([-1.0, -1.1, -0.9], False, False),
        ([1.0, 1.1, 0.9], True, False),
        ([1.0, 1.1, 0.9], False, True),
        ([1.0, -1.0, 0.5], True, None),
    ],
)
def test_better_needs_an_interval_without_zero(
    values: list[float], lower: bool, expected: bool | None
) -> None:
    assert better(Estimate.of(values), lower) is expected


@settings(deadline=None)
@given(numbers, st.floats(0, 10))
def test_as_good_is_the_same_seen_from_either_side(values: list[float], margin: float) -> None:
    gap, turned = Estimate.of(values), Estimate.of([-value for value in values])
    assert within(gap, margin, True) is within(turned, margin, False)


def test_as_good_within_a_margin() -> None:
    gap = Estimate.of([0.010, 0.011, 0.009])  # its interval is 0.0075 to 0.0125
    assert within(gap, 0.02, True) is True
    assert within(gap, 0.011, True) is None
    assert within(gap, 0.005, True) is False
    assert within(gap, 0.0, False) is True
    assert np.isclose(gap.high or 0, 0.01 + 4.302653 * 0.001 / 3**0.5)  # t(0.975, 2) from a table
