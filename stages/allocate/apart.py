"""Plans that keep clusters apart: the ways to make one, and which is taken."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stages.allocate import ownership
from stages.allocate.filling import fill
from stages.allocate.levels import Levels
from stages.allocate.matching import place
from stages.allocate.reconciling import reconcile
from stages.allocate.report import figures
from stages.allocate.separation import separate
from stages.allocate.shape import Shape
from stages.allocate.timing import Timed, Timing, deal_of
from stages.allocate.turns import take_turns

BALANCED = 1.02  # padded tokens, largest rank over mean, that need no improvement
_SMALL = 20_000  # examples; solving assignments for more would take minutes
_ATTEMPTS = 9  # for a small plan
_TOLERANCES = (0.015, 0.03, 0.06)  # of length, see ``filling``; tried in turn

Score = tuple[float, float]


def disjoint(
    cluster: np.ndarray,
    tokens: np.ndarray,
    shape: Shape,
    budget: int,
    seed: int,
) -> tuple[Timing, Timed]:
    """Tries ways to keep clusters apart, the one that leaves most with their owners first.

    It stops at the first in which ranks neither meet nor wait; otherwise the one with the fewest
    meetings is taken, and of several the one with the best balance.
    """
    home = ownership.disjoint(cluster, tokens, shape, np.random.default_rng([seed, 0]))
    tries = Tries(cluster, tokens, shape, budget, home)
    ways: list[Timing] = [] if budget else [tries.owned]
    if shape.ranks > 1 or budget:
        ways.append(tries.filled)
    if shape.ranks > 1 and not budget and shape.examples <= _SMALL:
        ways.append(tries.turned)
    found: list[tuple[Score, int, Timed]] = []
    for number, way in enumerate(ways):
        timed = way(np.random.default_rng([seed, 1, 0]), 0)
        found.append((tries.score(timed), number, timed))
        if tries.is_good(found[-1][0]):
            break
    _, number, timed = min(found, key=lambda one: one[:2])
    return ways[number], timed


def unavoidable_meetings(cluster: np.ndarray, shape: Shape) -> float:
    """Least chance that two ranks hold the same cluster in a step: one with more rows than a rank takes
    must be on several at once.
    """
    if shape.ranks < 2:
        return 0.0
    size = np.unique(cluster, return_counts=True)[1]
    holders, rest = np.divmod(size, -(-shape.examples // shape.ranks))
    part = rest / (shape.examples / shape.ranks)
    pairs = holders * (holders - 1) / 2 + part * holders
    return float(pairs.sum() / (shape.ranks * (shape.ranks - 1) / 2))


@dataclass(frozen=True)
class Tries:
    """Ways to keep clusters apart, for given owners ``home``."""

    cluster: np.ndarray
    tokens: np.ndarray
    shape: Shape
    budget: int
    home: np.ndarray

    def score(self, timed: Timed) -> Score:
        """Meetings of ranks, to three digits, then balance: the smaller, the better."""
        found = figures(deal_of(timed, self.shape, self.budget), self.cluster, self.tokens)
        return round(found["shared_cluster"], 3), found["padded_ratio_mean"]

    def is_good(self, score: Score) -> bool:
        """Whether there is nothing to gain by another try."""
        return score[0] <= round(self._unavoidable, 3) and score[1] <= BALANCED

    @cached_property
    def _unavoidable(self) -> float:
        return 0.0 if self.budget else unavoidable_meetings(self.cluster, self.shape)

    def owned(self, random: np.random.Generator, _: int) -> Timed:
        """Owners keep everything; lengths are matched as far as they have them."""
        unit = place(self.home, self.cluster, self.tokens, self.shape, random)
        levels = Levels.of_shape(self.shape, random)
        separate(unit, self.home, self.cluster, self.tokens, levels)
        return Timed(unit, self.home, levels.steps)

    def filled(self, random: np.random.Generator, steps: int) -> Timed:
        """Lengths are matched; owners keep what they can. Small plans are made several times, because
        chance decides how well the last rows fit.
        """
        best: tuple[Score, Timed] | None = None
        for number in range(self._attempts):
            timed = self._filled(random, steps, _TOLERANCES[number % len(_TOLERANCES)])
            score = self.score(timed) if self.shape.examples <= _SMALL else (0.0, 0.0)
            if best is None or score < best[0]:
                best = score, timed
            if self.is_good(score):
                break
        assert best is not None
        return best[1]

    @property
    def _attempts(self) -> int:
        return max(1, min(_ATTEMPTS, _SMALL // (self.shape.examples + 10 * self.shape.ranks)))

    def _filled(self, random: np.random.Generator, steps: int, tolerance: float) -> Timed:
        placed = None
        while placed is None:
            levels = self._levels(random, steps)
            placed = fill(self.home, self.cluster, self.tokens, levels, random, tolerance)
            steps = levels.steps + 1
        unit, rank = placed
        if self.shape.ranks > 1:
            limit = levels.limit(unit, rank)
            reconcile(unit, rank, self.cluster, self.tokens, levels, limit)
            separate(unit, rank, self.cluster, self.tokens, levels, limit)
        return Timed(unit, rank, levels.steps)

    def _levels(self, random: np.random.Generator, steps: int) -> Levels:
        if not self.budget:
            return Levels.of_shape(self.shape, random)
        longest = np.sort(self.tokens)[::-1][:: self.shape.ranks]
        return Levels.of_budget(longest, self.shape, self.budget, random, steps)

    def turned(self, random: np.random.Generator, _: int) -> Timed:
        """Owners keep everything, and parts of a cluster take turns."""
        unit = place(self.home, self.cluster, self.tokens, self.shape, random)
        take_turns(unit, self.home, self.cluster, self.tokens, self.shape, random)
        levels = Levels.of_shape(self.shape, random)
        separate(unit, self.home, self.cluster, self.tokens, levels)
        return Timed(unit, self.home, levels.steps)
