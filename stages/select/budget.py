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
class Floor:
    """The least that can be selected.

    Attributes:
        count: examples.
        reasons: the flags that ask for them.
    """

    count: int = 1
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        verb = "needs" if len(self.reasons) == 1 else "need"
        return f"{' and '.join(self.reasons)} {verb} {self.count} examples"


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

    def apply(self, pool: Pool, choose: Choose, floor: Floor = Floor()) -> np.ndarray:
        """The pool indices that ``choose`` gives within the budget.

        Raises:
            SettingError: more is asked for than there is, less than the floor, or no example fits into
                the tokens.
        """
        if self.tokens is not None:
            return _within_tokens(pool, choose, self.tokens, floor)
        count = len(pool) if self.fraction is None else rows(float(self.fraction), pool)
        if self.count is not None:
            count = self.count
        if count > len(pool):
            left = " that are not excluded" if pool.excluded else ""
            raise SettingError(
                f"--count {count} is more than the {len(pool)} clustered rows{left}",
                fix=f"give at most {len(pool)}",
            )
        if count < floor.count:
            raise SettingError(
                f"{floor}, the budget is {count}", fix=f"give at least --count {floor.count}"
            )
        return choose(count)


def rows(fraction: float, pool: Pool) -> int:
    """The number of examples that a fraction of the pool is, at least one."""
    return max(1, int(fraction * len(pool) + 0.5))


def _is_fraction(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 < value <= 1


def _within_tokens(pool: Pool, choose: Choose, tokens: int, floor: Floor) -> np.ndarray:
    """The largest selection found by bisection whose tokens stay within the budget."""

    def cost(chosen: np.ndarray) -> int:
        return int(pool.tokens[chosen].sum(dtype=np.int64))

    if int(pool.tokens.sum(dtype=np.int64)) <= tokens:
        return choose(len(pool))
    fits, exceeds = floor.count - 1, len(pool)
    best = np.empty(0, dtype=np.int64)
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        chosen = choose(middle)
        if cost(chosen) <= tokens:
            fits, best = middle, chosen
        else:
            exceeds = middle
    if len(best):
        return best
    if floor.reasons:
        least = cost(choose(floor.count))
        raise SettingError(
            f"{floor} of {least} tokens, the budget is {tokens}",
            fix=f"give at least --tokens {least}",
        )
    raise SettingError(
        f"--tokens {tokens} holds no example; the shortest has {int(pool.tokens.min())} tokens",
        fix="give more tokens",
    )
