"""Figures and their intervals, checked against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.evaluate.figures import interval, summarise

losses = st.lists(st.floats(0, 20), min_size=2, max_size=30)


def examples(loss: list[float], tokens: list[int], kind: list[str]) -> dict[str, Any]:
    return {"loss": loss, "tokens": tokens, "groups": {"kind": kind}}


def test_per_example_and_per_token_are_the_two_means() -> None:
    found = summarise(examples([1.0, 2.0, 4.0], [1, 1, 8], ["a", "b", "a"]), 200, 0)
    assert found["overall"]["loss"]["value"] == pytest.approx(7 / 3)
    assert found["overall"]["token_loss"]["value"] == pytest.approx((1 + 2 + 32) / 10)
    assert found["by"]["kind"]["a"]["token_loss"]["value"] == pytest.approx(33 / 9)
    assert found["by"]["kind"]["b"]["loss"] == {
        "value": 2.0,
        "low": None,
        "high": None,
        "examples": 1,
    }


def test_examples_without_a_value_do_not_count() -> None:
    columns = examples([1.0, 2.0], [1, 1], ["a", "b"]) | {"accuracy": [None, 1.0]}
    found = summarise(columns, 200, 0)
    assert found["overall"]["accuracy"]["examples"] == 1
    assert "accuracy" not in found["by"]["kind"]["a"]


@settings(max_examples=30, deadline=None)
@given(losses, st.integers(0, 5))
def test_the_interval_lies_inside_the_values_and_repeats(values: list[float], seed: int) -> None:
    top = np.array(values)
    low, high = interval(top, np.ones(len(top)), 200, seed)
    assert low is not None
    assert high is not None
    assert top.min() - 1e-9 <= low <= high <= top.max() + 1e-9
    assert interval(top, np.ones(len(top)), 200, seed) == (low, high)


def test_a_group_does_not_depend_on_the_others() -> None:
    loss, kinds = [1.0, 3.0, 2.0, 9.0], ["a", "a", "a", "b"]
    more = summarise(examples([*loss, 5.0], [1] * 5, [*kinds, "c"]), 200, 3)
    less = summarise(examples(loss, [1] * 4, kinds), 200, 3)
    assert more["by"]["kind"]["a"] == less["by"]["kind"]["a"]


def test_the_interval_is_that_of_the_textbook() -> None:
    """For 400 standard normal values the mean's standard error is 1/20: +- 1.96/20."""
    values = np.random.default_rng(1).standard_normal(400)
    values = (values - values.mean()) / values.std()
    low, high = interval(values, np.ones(400), 4000, 0)
    assert low == pytest.approx(-0.098, abs=0.006)
    assert high == pytest.approx(0.098, abs=0.006)


def test_slices_of_the_resampling_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(10.0)
    whole = interval(values, np.ones(10), 300, 0)
    monkeypatch.setattr("stages.evaluate.figures._DRAWS_AT_ONCE", 70)
    assert interval(values, np.ones(10), 300, 0) == whole
