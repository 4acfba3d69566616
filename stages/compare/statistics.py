"""Means over seeds, differences paired by seed, and what may be said about them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: of the values.
        deviation: sample standard deviation; None for a single value.
        low, high: Student's 95 % interval for the mean (Student 1908); None for a single value.
        values: one per seed, in the order of seeds.
    """

    mean: float
    deviation: float | None
    low: float | None
    high: float | None
    values: list[float]

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """The estimate from one value per seed."""
        from scipy.stats import t

        sample = np.asarray(values, np.float64)
        mean, count = float(sample.mean()), len(sample)
        if count < 2:
            return cls(mean, None, None, None, sample.tolist())
        deviation = float(sample.std(ddof=1))
        reach = float(t.ppf((1 + LEVEL) / 2, count - 1)) * deviation / math.sqrt(count)
        return cls(mean, deviation, mean - reach, mean + reach, sample.tolist())

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def difference(arm: Sequence[float], other: Sequence[float]) -> Estimate:
    """Arm minus other, seed by seed: what both share in a seed cancels."""
    return Estimate.of([a - b for a, b in zip(arm, other, strict=True)])


def better(gap: Estimate, lower_is_better: bool) -> bool | None:
    """Whether a difference is an improvement; None when its interval holds zero, or there is none."""
    if gap.low is None or gap.high is None or gap.low <= 0 <= gap.high:
        return None
    return (gap.high < 0) == lower_is_better


def within(gap: Estimate, margin: float, lower_is_better: bool) -> bool | None:
    """Whether a difference is no loss beyond the margin.

    True where the whole interval lies on the good side of the margin, False where it lies on the bad
    side, None where it does not tell.
    """
    if gap.low is None or gap.high is None:
        return None
    worst, best = (gap.high, gap.low) if lower_is_better else (-gap.low, -gap.high)
    if worst <= margin:
        return True
    return False if best > margin else None
