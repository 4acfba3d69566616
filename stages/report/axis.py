"""The axes of charts: from where to where they reach, and where their numbers stand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Numbers = Sequence[float] | np.ndarray
Write = Callable[[float], str]


def plain(value: float) -> str:
    """A tick's number: digits as far as they say something."""
    return f"{value:,.10g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.0e}"


def signed(value: float) -> str:
    """A difference as a tick."""
    return f"{value:+,.10g}" if value else "0"


def percent(value: float) -> str:
    """A share as a tick."""
    return f"{100 * value:.10g} %"


@dataclass(frozen=True)
class Axis:
    """One axis: what it shows, from where to where, how its numbers are written, and whether only whole
    ones are.
    """

    label: str
    low: float
    high: float
    write: Write = plain
    whole: bool = False

    @classmethod
    def of(
        cls,
        label: str,
        *values: Numbers,
        zero: bool = False,
        write: Write = plain,
        room: float = 0.05,
        whole: bool = False,
    ) -> Axis:
        """An axis that holds all finite values, and zero if asked for."""
        joined = np.concatenate([np.asarray(v, np.float64).ravel() for v in values])
        finite = joined[np.isfinite(joined)]
        finite = np.append(finite, 0.0) if zero or not len(finite) else finite
        low, high = float(finite.min()), float(finite.max())
        reach = (high - low) or abs(high) or 1.0
        below = 0.0 if zero and low == 0 else room * reach
        return cls(label, low - below, high + room * reach, write, whole)

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers (1, 2 or 5 times a power of ten apart), at most so many."""
        reach = self.high - self.low
        power = 10.0 ** math.floor(math.log10(reach / most))
        steps = (m * power for m in (1, 2, 5, 10, 20))
        step = next(s for s in steps if reach / s <= most + 1e-9)
        step = max(1.0, step) if self.whole else step
        first = math.ceil(self.low / step - 1e-9)
        count = math.floor(self.high / step + 1e-9) - first + 1
        return [round((first + i) * step, 12) for i in range(count)]

    def place(self, values: Numbers | float, start: float, end: float) -> np.ndarray:
        """Positions between two ends, values outside cut off at them."""
        share = (np.asarray(values, np.float64) - self.low) / (self.high - self.low)
        return start + np.clip(share, 0, 1) * (end - start)
