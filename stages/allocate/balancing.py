"""Makes every global batch resemble the whole selection, by exchanges.

A plan comes in that is matched in length and keeps clusters apart. Two examples of one rank, near in
length, change steps where that brings the sums of both steps nearer to what the whole selection's mean
would make them; the plan stays as matched and as disjoint as it was. Orders that resemble the whole
were proposed as herding (Welling 2009; for training GraB, Lu et al. 2022, and over several workers
CD-GraB, Cooper et al. 2023). Those choose one example after the other; what fits nowhere is left for
the end of the epoch, whose batches are then worse than a shuffle's. Here the vectors are signatures,
known beforehand, so that no choice is final, and training pays nothing for it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from stages.allocate.apart import BALANCED
from stages.allocate.report import padded_tokens
from stages.allocate.shape import Shape
from stages.allocate.timing import Timed, deal_of
from stages.allocate.vectors import SHORT, projection, shorten

_WINDOW = 32  # partners looked at for an example, drawn from all that are near enough in length
_TRIES = 12  # of them asked whether the plan allows it, the best first
_SHORTER, _LONGER = 0.9, 1.05  # of the longest in a micro-batch: lengths that a place in it takes
_GAIN = 0.03  # a pass over all examples that gains less is the last


def balance(
    timed: Timed,
    cluster: np.ndarray,
    tokens: np.ndarray,
    deviation_MD: np.ndarray,
    shape: Shape,
    random: np.random.Generator,
    budget: int = 0,
) -> None:
    """Changes ``timed.unit`` in place; ranks keep their examples, micro-batches their number of them.

    Lowers the sum over steps of the squared length of each step's sum of deviations, pair by pair,
    until a pass over all examples gains less than 3 %.

    Args:
        timed: the plan.
        cluster: (M).
        tokens: (M).
        deviation_MD: (M, D) float32, weighted signatures minus their mean.
        shape: the plan's shape.
        random: in which order examples look for partners.
        budget: padded tokens that a micro-batch may have; 0 without.
    """
    if not len(timed.unit):
        return
    exchange = _Exchange(timed, cluster, tokens, deviation_MD, shape, random, budget)
    before = np.inf
    while (now := exchange.unevenness()) < (1 - _GAIN) * before:
        before = now
        for example in random.permutation(len(cluster)).tolist():
            exchange.improve(example)


def deviations(
    vector_MD: np.ndarray, weight: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """Weighted vectors minus their mean, (M, D') float32, projected when they are long."""
    if vector_MD.shape[1] > SHORT:
        vector_MD = shorten(vector_MD, projection(vector_MD.shape[1], random))
    weighted_MD = vector_MD * weight[:, None].astype(np.float32)
    return weighted_MD - weighted_MD.mean(axis=0, dtype=np.float64).astype(np.float32)


class _Exchange:
    """Where everything stands, and what an exchange would change."""

    def __init__(
        self,
        timed: Timed,
        cluster: np.ndarray,
        tokens: np.ndarray,
        deviation_MD: np.ndarray,
        shape: Shape,
        random: np.random.Generator,
        budget: int,
    ) -> None:
        self._unit, self._rank, self._tokens = timed.unit, timed.rank, tokens
        self._deviation_MD, self._random = deviation_MD, random
        self._step = timed.unit // shape.accumulation
        self._sum_SD = np.zeros((timed.steps, deviation_MD.shape[1]), dtype=np.float32)
        np.add.at(self._sum_SD, self._step, deviation_MD)
        self._cells = _Cells(timed, tokens, shape, budget)
        self._held = _Held(self._step, timed.rank, cluster, shape.ranks)
        # A place takes lengths near those it was planned for, whoever stands there.
        top = self._cells.longest()
        self._least, self._most = _SHORTER * top, _LONGER * top
        self._own = [
            own[np.argsort(tokens[own], kind="stable")]
            for own in (np.flatnonzero(timed.rank == r) for r in range(shape.ranks))
        ]
        # As floats, like what is looked for: a search would convert all of them each time.
        self._length = [tokens[own].astype(np.float64) for own in self._own]

    def unevenness(self) -> float:
        """What exchanges make smaller."""
        return float(np.einsum("sd,sd->", self._sum_SD, self._sum_SD))

    def improve(self, example: int) -> None:
        """Exchanges an example with the partner that helps most, if there is one."""
        partner = self._partners(example)
        if not len(partner):
            return
        step = self._step[example]
        difference_JD = self._deviation_MD[partner] - self._deviation_MD[example]
        # Half of what an exchange adds to the sum of squares: D.(S - T) + D.D, if D comes to S from T.
        away_JD = self._sum_SD[step] - self._sum_SD[self._step[partner]] + difference_JD
        change = np.einsum("jd,jd->j", difference_JD, away_JD)
        for at in np.argsort(change)[:_TRIES].tolist():
            if change[at] >= 0:
                return
            other = int(partner[at])
            if self._held.stays_apart(example, other) and self._cells.exchange(example, other):
                self._apply(example, other, difference_JD[at])
                return

    def _partners(self, example: int) -> np.ndarray:
        """Examples of the same rank at other steps; each of the two fits into the other's place."""
        rank, length = int(self._rank[example]), self._tokens[example]
        least, most = min(self._least[example], length), max(self._most[example], length)
        low = np.searchsorted(self._length[rank], least, "left")
        high = np.searchsorted(self._length[rank], most, "right")
        if high - low > _WINDOW:
            drawn = self._own[rank][self._random.integers(low, high, _WINDOW)]
        else:
            drawn = self._own[rank][low:high]
        # Who is longer than the place was planned for, or shorter, may get nearer to it.
        here = self._tokens[drawn]
        fits = (length <= np.maximum(self._most[drawn], here)) & (
            length >= np.minimum(self._least[drawn], here)
        )
        return drawn[fits & (self._step[drawn] != self._step[example])]

    def _apply(self, left: int, right: int, difference_D: np.ndarray) -> None:
        self._held.exchange(left, right)
        self._sum_SD[self._step[left]] += difference_D
        self._sum_SD[self._step[right]] -= difference_D
        for places in (self._unit, self._step, self._least, self._most):
            places[left], places[right] = places[right], places[left]


class _Cells:
    """Who stands in which micro-batch, and how many padded tokens that makes."""

    def __init__(self, timed: Timed, tokens: np.ndarray, shape: Shape, budget: int) -> None:
        self._timed, self._ranks, self._accumulation = timed, shape.ranks, shape.accumulation
        deal = deal_of(timed, shape, budget)
        edges = np.cumsum(deal.rows.ravel(), dtype=np.int64)[:-1]
        self._members = [part.tolist() for part in np.split(deal.example, edges)]
        self._longest_C = deal.longest(tokens).ravel()
        self._padded_SR = padded_tokens(deal, tokens)
        ratio_S = self._padded_SR.max(axis=1) / np.maximum(self._padded_SR.mean(axis=1), 1)
        self._allowed_S = np.maximum(ratio_S, BALANCED)
        self._tokens, self._budget = tokens.tolist(), budget

    def longest(self) -> np.ndarray:
        """(M) tokens of the longest in the micro-batch of each example."""
        return self._longest_C[self._timed.unit.astype(np.int64) * self._ranks + self._timed.rank]

    def exchange(self, left: int, right: int) -> bool:
        """Notes an exchange of the two, of one rank and different steps; refuses one that makes a
        step's ranks wait longer, or a micro-batch exceed the budget.
        """
        changes = [self._change(left, right), self._change(right, left)]
        if not all(self._allows(cell, longest) for cell, longest in changes):
            return False
        for (cell, longest), (leaves, enters) in zip(
            changes, ((left, right), (right, left)), strict=True
        ):
            members = self._members[cell]
            members[members.index(leaves)] = enters
            step, rank = self._of(cell)
            self._padded_SR[step, rank] += (longest - self._longest_C[cell]) * len(members)
            self._longest_C[cell] = longest
        return True

    def _change(self, leaves: int, enters: int) -> tuple[int, int]:
        """The cell of an example, and the longest in it once another has come for it."""
        cell = int(self._timed.unit[leaves]) * self._ranks + int(self._timed.rank[leaves])
        rest = [self._tokens[member] for member in self._members[cell] if member != leaves]
        return cell, max([*rest, self._tokens[enters]])

    def _of(self, cell: int) -> tuple[int, int]:
        return cell // (self._ranks * self._accumulation), cell % self._ranks

    def _allows(self, cell: int, longest: int) -> bool:
        rows, before = len(self._members[cell]), int(self._longest_C[cell])
        if longest == before:
            return True
        if longest > before and self._budget and rows > 1 and rows * longest > self._budget:
            return False
        step, rank = self._of(cell)
        padded_R = self._padded_SR[step].copy()
        padded_R[rank] += (longest - before) * rows
        return bool(padded_R.max() * self._ranks <= self._allowed_S[step] * padded_R.sum())


class _Held:
    """Which rank holds which cluster at which step."""

    def __init__(self, step: np.ndarray, rank: np.ndarray, cluster: np.ndarray, ranks: int) -> None:
        self._step, self._rank = step, rank.tolist()
        self._cluster, self._ranks = cluster.tolist(), ranks
        self._clusters = int(cluster.max()) + 1
        places = step * self._clusters + cluster  # of a cluster at a step
        self._rows = Counter((places * self._ranks + rank).tolist())
        self._holders = Counter(key // self._ranks for key in self._rows)

    def stays_apart(self, left: int, right: int) -> bool:
        """Whether an exchange of the two, of one rank, makes no two ranks meet on a cluster."""
        return self._is_free(right, left) and self._is_free(left, right)

    def _is_free(self, enters: int, leaves: int) -> bool:
        """Whether the rank holds that cluster there anyway, or nobody does."""
        place = self._place(leaves, self._cluster[enters])
        held = self._rows.get(place * self._ranks + self._rank[enters], 0)
        return held > 0 or not self._holders.get(place, 0)

    def _place(self, example: int, cluster: int) -> int:
        return int(self._step[example]) * self._clusters + cluster

    def exchange(self, left: int, right: int) -> None:
        """Takes note of an exchange of the two."""
        for leaves, enters in ((left, right), (right, left)):
            self._add(self._place(leaves, self._cluster[leaves]), self._rank[leaves], -1)
            self._add(self._place(leaves, self._cluster[enters]), self._rank[enters], 1)

    def _add(self, place: int, rank: int, rows: int) -> None:
        key = place * self._ranks + rank
        before = self._rows[key]
        self._rows[key] = before + rows
        if not before or not before + rows:
            self._holders[place] += rows
        if not before + rows:
            del self._rows[key]
