"""The strategies: from a selection and a shape to one deal per epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from formats.errors import SettingError
from formats.selection import Selection
from stages.allocate import budget as budgets
from stages.allocate import ownership
from stages.allocate.apart import disjoint
from stages.allocate.balancing import balance, deviations
from stages.allocate.deal import Deal
from stages.allocate.matching import place
from stages.allocate.shape import Shape
from stages.allocate.timing import Timed, Timing, deal_of

STRATEGIES = ("disjoint", "interleaved", "balanced", "random")


def plan(
    selection: Selection,
    shape: Shape,
    strategy: str,
    *,
    epochs: int,
    seed: int,
    rotate: bool,
    vectors: np.ndarray | None = None,
    budget: int = 0,
) -> Iterator[Deal]:
    """One deal per epoch; equal arguments give equal deals.

    Args:
        selection: what is shared out.
        shape: over what.
        strategy: ``disjoint``: each cluster on one rank at a time, and as far as it goes on the same;
            ``interleaved``: each cluster dealt over all ranks; ``balanced``: as disjoint, and every
            global batch like the whole selection; ``random``: the usual shuffle.
        epochs: passes.
        seed: other seeds, other plans.
        rotate: in epoch e rank r takes over what rank r - e owned in the first.
        vectors: (M, D) float32 signatures, which ``balanced`` needs.
        budget: padded tokens of a micro-batch; 0: as many rows as ``shape`` says.

    Raises:
        SettingError: there is no such strategy, or ``balanced`` has no vectors.
    """
    if strategy not in STRATEGIES:
        raise SettingError(
            f"there is no strategy {strategy!r}", fix=f"use one of {', '.join(STRATEGIES)}"
        )
    if strategy == "balanced":
        if vectors is None:
            raise SettingError("balanced needs signatures", fix="use another strategy")
        away = deviations(vectors, selection.weight, np.random.default_rng([seed, 3]))
    cluster, tokens = selection.cluster, selection.tokens
    timing, first = _METHODS[strategy](cluster, tokens, shape, budget, seed)
    for epoch, timed in enumerate(_epochs(timing, first, epochs, seed, budget)):
        if strategy == "balanced":
            order = np.random.default_rng([seed, 4, epoch])
            balance(timed, cluster, tokens, away, shape, order, budget)
        deal = deal_of(timed, shape, budget)
        yield deal.rotated(epoch) if rotate else deal


def _epochs(timing: Timing, first: Timed, epochs: int, seed: int, budget: int) -> Iterator[Timed]:
    """Every epoch, all of them with the same number of steps."""

    def of(epoch: int, steps: int) -> Timed:
        return timing(np.random.default_rng([seed, 1, epoch]), steps)

    if not budget:
        yield first
        yield from (of(epoch, 0) for epoch in range(1, epochs))
        return
    found = [first, *(of(epoch, first.steps) for epoch in range(1, epochs))]
    while (steps := max(each.steps for each in found)) > min(each.steps for each in found):
        found = [
            each if each.steps == steps else of(epoch, steps) for epoch, each in enumerate(found)
        ]
    yield from found


def shuffled(
    shape: Shape, tokens: np.ndarray, budget: int, random: np.random.Generator, steps: int = 0
) -> Timed:
    """The usual shuffle, dealt out without looking at clusters or lengths."""
    if budget:
        return Timed(*budgets.streamed(tokens, shape, budget, random, steps))
    rows = shape.unit_rows()
    cell = np.repeat(np.arange(rows.size), rows.ravel())
    chosen = np.empty(shape.examples, dtype=np.int64)
    chosen[random.permutation(shape.examples)] = cell
    return Timed(chosen // shape.ranks, chosen % shape.ranks, shape.steps)


def baseline(shape: Shape, tokens: np.ndarray, budget: int, seed: int) -> Deal:
    """The usual shuffle of the same examples, which plans are compared with."""
    return deal_of(shuffled(shape, tokens, budget, np.random.default_rng([seed, 2])), shape, budget)


def _random(
    cluster: np.ndarray, tokens: np.ndarray, shape: Shape, budget: int, seed: int
) -> tuple[Timing, Timed]:
    def timing(random: np.random.Generator, steps: int) -> Timed:
        return shuffled(shape, tokens, budget, random, steps)

    return timing, timing(np.random.default_rng([seed, 1, 0]), 0)


def _interleaved(
    cluster: np.ndarray, tokens: np.ndarray, shape: Shape, budget: int, seed: int
) -> tuple[Timing, Timed]:
    rank = ownership.interleaved(cluster, tokens, shape, np.random.default_rng([seed, 0]))

    def timing(random: np.random.Generator, steps: int) -> Timed:
        if budget:
            unit, levels = budgets.matched(rank, tokens, shape, budget, random, steps)
            return Timed(unit, rank, levels.steps)
        return Timed(place(rank, cluster, tokens, shape, random), rank, shape.steps)

    return timing, timing(np.random.default_rng([seed, 1, 0]), 0)


_METHODS: dict[str, Callable[..., tuple[Timing, Timed]]] = {
    "disjoint": disjoint,
    "balanced": disjoint,
    "interleaved": _interleaved,
    "random": _random,
}
