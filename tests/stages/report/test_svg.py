"""Charts: ticks, positions, and what becomes of texts and gaps."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.report.axis import Axis, percent, plain, signed
from stages.report.svg import HEIGHT, WIDTH, Plot, Rows, thinned


@pytest.mark.parametrize(
    ("low", "high", "ticks"),  # by hand: 1, 2 or 5 times a power of ten apart, at most six steps
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (-1.3, 1.2, [-1, -0.5, 0, 0.5, 1]),
        (0.0312, 0.0318, [0.0312, 0.0313, 0.0314, 0.0315, 0.0316, 0.0317, 0.0318]),
        (5, 6000, [1000, 2000, 3000, 4000, 5000, 6000]),
    ],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert Axis("", low, high).ticks() == pytest.approx(ticks)


def test_ticks_of_counts_are_whole() -> None:
    assert Axis("", -0.5, 2.5, whole=True).ticks() == [0, 1, 2]
    assert Axis("", -0.5, 2.5).ticks() == [-0.5, 0, 0.5, 1, 1.5, 2, 2.5]


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
    st.integers(2, 10),
)
def test_ticks_lie_inside(low: float, reach: float, most: int) -> None:
    ticks = Axis("", low, low + reach).ticks(most)
    assert 1 <= len(ticks) <= most + 1
    assert min(ticks) >= low - 1e-6 * reach - 1e-9
    assert max(ticks) <= low + reach + 1e-6 * reach + 1e-9
    assert ticks == sorted(set(ticks))


def test_an_axis_holds_its_values_and_nothing_that_is_no_number() -> None:
    assert (Axis.of("", [1, 3, np.nan]).low, Axis.of("", [1, 3]).high) == (0.9, 3.1)
    assert Axis.of("", [2, 4], zero=True).low == 0
    assert Axis.of("", [5, 5]).low < 5 < Axis.of("", [5, 5]).high
    assert (
        Axis.of("", [np.inf], []).high > Axis.of("", [np.inf], []).low
    )  # an empty axis is drawn too


def test_numbers_are_written_for_people() -> None:
    assert [plain(v) for v in (0, 1500, 0.25, 5e-5)] == ["0", "1,500", "0.25", "5e-05"]
    assert [signed(v) for v in (-0.5, 0, 2)] == ["-0.5", "0", "+2"]
    assert percent(0.31) == "31 %"


def test_a_line_goes_where_its_points_are() -> None:
    plot = Plot("t", Axis("x", 0, 10), Axis("y", 0, 1))
    plot.line([0, 10], [0, 1], 1)
    # the frame: 56 left, 20 right, 28 above, 44 below, see stages.report.svg
    assert f'<path class="line c1" d="M56 {HEIGHT - 44}L{WIDTH - 20} 28"/>' in plot.svg()


def test_gaps_are_left_out() -> None:
    plot = Plot("t", Axis("x", 0, 10), Axis("y", 0, 1))
    plot.dots([1, 2, 3], [0.5, np.nan, 0.5], 3)
    drawn = re.search(r'class="dots c3" d="([^"]*)"', plot.svg())
    assert drawn is not None
    assert drawn[1].count("h0") == 2
    rows = Rows("t", ["a", "b"], Axis("x", 0, 1))
    rows.intervals([0.1, np.nan], [0.2, np.nan], 1)
    rows.dots([np.nan, np.nan], 2)
    assert rows.svg().count("c1") == 1
    assert "c2" not in rows.svg()


def test_names_are_escaped_and_cut() -> None:
    svg = Rows("<b>", ["<script>alert(1)</script>", "a" * 40], Axis("&", 0, 1)).svg()
    assert "<script" not in svg
    assert "&lt;script&gt;alert(1)&lt;/s" in svg
    assert f">{'a' * 20}…<" in svg
    assert 'aria-label="&lt;b&gt;"' in svg


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=700), st.integers(1, 50))
def test_a_thinned_series_keeps_mean_and_length(values: list[float], most: int) -> None:
    place, mean = thinned(values, most)
    assert len(place) == len(mean) == min(most, len(values))
    parts = np.array_split(np.arange(len(values)), len(place))
    weight = np.array([len(part) for part in parts])
    assert np.average(mean, weights=weight) == pytest.approx(np.mean(values), abs=1e-9)
    assert np.all(np.diff(place) > 0)
