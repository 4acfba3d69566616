"""The fraction that is nearly as good as everything, from curves whose answer is known."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.compare.needed import needed, sentences


def line(arm: str, rows: int, *values: float) -> dict[str, Any]:
    mean = sum(values) / len(values)
    return {"arm": arm, "rows": rows, "quality": {"q": {"mean": mean, "values": list(values)}}}


def curve(*points: tuple[int, float], full: float) -> dict[str, Any]:
    """Of one seed, over 100 rows."""
    lines = [line(f"cluster {rows} %", rows, value) for rows, value in points]
    return needed([line("full", 100, full), *lines], "q", "full")[0]


def test_the_target_is_found_on_the_line_between_two_fractions() -> None:
    # 99 % of 1.0 lies half way from 0.98 to 1.0, and half way from log 0.25 to log 1 is 0.5.
    found = curve((10, 0.5), (25, 0.98), full=1.0)
    assert found["needed"]["mean"] == pytest.approx(0.5)
    assert found["fractions"] == [0.1, 0.25, 1.0]
    assert sentences([found]) == [
        "cluster: 99% of full quality from about 50% of the rows on; one seed shows no spread."
    ]


def test_a_curve_that_dips_again_counts_from_the_last_rise() -> None:
    assert curve((10, 1.0), (40, 0.5), full=1.0)["needed"]["mean"] > 0.9


def test_a_loss_is_better_when_lower() -> None:
    lines = [line("full", 100, 0.99), line("random 10 %", 10, 2.0), line("random 50 %", 50, 1.0)]
    for each in lines:
        each["quality"] = {"loss": each["quality"]["q"]}
    found = needed(lines, "loss", "full")[0]
    assert found["needed"]["mean"] == pytest.approx(0.5)


def test_nothing_is_said_below_the_smallest_part() -> None:
    found = curve((10, 1.0), (31, 1.0), full=1.0)
    assert found["at_most"]
    assert sentences([found]) == [
        "cluster: 99% of full quality with at most 10% of the rows, the smallest part measured."
    ]


def test_seeds_give_an_interval() -> None:
    lines = [
        line("full", 100, 1, 1),
        line("random 25 %", 25, 0.98, 0.98),
        line("random 5 %", 5, 0, 0),
    ]
    text = sentences(needed(lines, "q", "full"))
    assert text == ["random: 99% of full quality from about 50% of the rows on (50% to 50%)."]


def test_one_fraction_is_no_curve() -> None:
    assert needed([line("full", 100, 1.0), line("random 31 %", 31, 0.5)], "q", "full") == []
    assert needed([line("random 31 %", 31, 0.5)], "q", "full") == []


@given(st.lists(st.floats(0, 2), min_size=2, max_size=5))
def test_the_answer_lies_among_the_fractions_and_what_is_left_is_good(values: list[float]) -> None:
    points = [(10 * (at + 1), value) for at, value in enumerate(values)]
    found = curve(*points, full=1.0)
    assert 0.1 <= found["needed"]["mean"] <= 1.0
    beyond = [v for rows, v in points if rows / 100 > found["needed"]["mean"] * (1 + 1e-9)]
    assert all(value >= 0.99 for value in beyond)
    assert math.isfinite(found["needed"]["mean"])
