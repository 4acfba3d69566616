"""How much to select: a fraction, a count or tokens, exactly one of them.

The fraction ``auto`` is replaced by a number before it is applied, see ``stages.select.coverage``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from formats.errors import SettingError
from stages.select.pool import Pool

Choose = Callable[[int], np.ndarray]  # number of examples -> pool indices


@dataclass(frozen=True)
class Budget:
    """What was asked for; at most one is set.

    Attributes:
        fraction: of the clustered rows, 0 < fraction <= 1, or "auto".
        count: examples.
        tokens: prompt and response tokens of all selected examples together, at most.
    """

    fraction: float | Literal["auto"] | None = None
    count: int | None = None
    tokens: int | None = None

    def check(self, needed: bool) -> None:
        """Raises SettingError unless the budget is one value in its range (or none where allowed)."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) > 1:
            both = " and ".join(f"--{name} {value}" for name, value in given.items())
            raise SettingError(f"{both} are both given", fix="give one budget")
        if needed and not given:
            raise SettingError(
                "no budget is given", fix="add --fraction 0.31, --count N or --tokens N"
            )
        if self.fraction not in (None, "auto") and not _is_fraction(self.fraction):
            raise SettingError(
                f"--fraction is {self.fraction}", fix="give a number above 0, at most 1, or auto"
            )
        for name in ("count", "tokens"):
            if (value := given.get(name)) is not None and value < 1:
                raise SettingError(f"--{name} is {value}", fix="give a positive number")

    def apply(self, pool: Pool, choose: Choose) -> np.ndarray:
        """The pool indices that ``choose`` gives within the budget.

        Raises:
            SettingError: more is asked for than there is, or no example fits into the tokens.
        """
        if self.tokens is not None:
            return _within_tokens(pool, choose, self.tokens)
        if self.count is not None:
            if self.count > len(pool):
                raise SettingError(
                    f"--count {self.count} is more than the {len(pool)} clustered rows",
                    fix=f"give at most {len(pool)}",
                )
            return choose(self.count)
        if self.fraction is not None:
            return choose(rows(float(self.fraction), pool))
        return choose(len(pool))


def rows(fraction: float, pool: Pool) -> int:
    """The number of examples that a fraction of the pool is, at least one."""
    return max(1, int(fraction * len(pool) + 0.5))


def _is_fraction(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 < value <= 1


def _within_tokens(pool: Pool, choose: Choose, tokens: int) -> np.ndarray:
    """The largest selection found by bisection whose tokens stay within the budget."""
    if int(pool.tokens.sum(dtype=np.int64)) <= tokens:
        return choose(len(pool))
    fits, exceeds = 0, len(pool)
    best = np.empty(0, dtype=np.int64)
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        chosen = choose(middle)
        if int(pool.tokens[chosen].sum(dtype=np.int64)) <= tokens:
            fits, best = middle, chosen
        else:
            exceeds = middle
    if not len(best):
        raise SettingError(
            f"--tokens {tokens} holds no example; the shortest has {int(pool.tokens.min())} tokens",
            fix="give more tokens",
        )
    return best
