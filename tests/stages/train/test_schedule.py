"""The learning rate over the steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.train.schedule import learning_rate


def rates(schedule: str, warmup: float = 0.2, steps: int = 10) -> list[float]:
    return [
        learning_rate(step, steps=steps, peak=1.0, warmup=warmup, schedule=schedule)
        for step in range(steps)
    ]


def test_by_hand() -> None:
    assert rates("constant") == [0.5] + [1.0] * 9
    linear = [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    assert rates("linear") == pytest.approx(linear)
    # half a cosine over eight steps: cos(pi / 4) and so on
    wave = [1.0, 0.96193977, 0.85355339, 0.69134172, 0.5, 0.30865828, 0.14644661, 0.03806023]
    assert rates("cosine") == pytest.approx([0.5, 1.0, *wave])


@given(
    steps=st.integers(1, 500),
    warmup=st.floats(0, 0.99),
    schedule=st.sampled_from(["cosine", "linear", "constant"]),
)
def test_rises_then_falls_and_is_never_zero(steps: int, warmup: float, schedule: str) -> None:
    got = rates(schedule, warmup, steps)
    rising = round(warmup * steps)
    assert all(0 < rate <= 1 for rate in got)
    assert got[:rising] == sorted(got[:rising])
    assert got[rising:] == sorted(got[rising:], reverse=True)
    assert max(got) == 1.0
