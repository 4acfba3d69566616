"""The strategies: from a selection and a shape to one grid per epoch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from formats.errors import SettingError
from formats.selection import Selection
from stages.allocate import ownership
from stages.allocate.matching import place
from stages.allocate.separation import separate
from stages.allocate.shape import Shape

STRATEGIES = ("disjoint", "interleaved", "random")


def plan(
    selection: Selection, shape: Shape, strategy: str, *, epochs: int, seed: int, rotate: bool
) -> Iterator[np.ndarray]:
    """One grid (S, A, R, m) int32 per epoch; equal arguments give equal grids.

    Args:
        selection: what is shared out.
        shape: over what.
        strategy: ``disjoint``: each cluster on one rank; ``interleaved``: each cluster dealt over all
            ranks; ``random``: the usual shuffle.
        epochs: passes.
        seed: other seeds, other plans.
        rotate: in epoch e rank r takes over what rank r - e owned in the first.

    Raises:
        SettingError: there is no such strategy.
    """
    if strategy not in STRATEGIES:
        raise SettingError(
            f"there is no strategy {strategy!r}", fix=f"use one of {', '.join(STRATEGIES)}"
        )
    cluster, tokens = selection.cluster, selection.tokens
    rank = np.empty(0)
    if strategy != "random":
        own = getattr(ownership, strategy)
        rank = own(cluster, tokens, shape, np.random.default_rng([seed, 0]))
    for epoch in range(epochs):
        random = np.random.default_rng([seed, 1, epoch])
        if strategy == "random":
            grid = shuffled(shape, random)
        else:
            unit = place(rank, cluster, tokens, shape, random)
            if strategy == "disjoint":
                separate(unit, rank, cluster, tokens, shape, random)
            grid = shape.grid(unit, rank)
        yield np.roll(grid, epoch, axis=2) if rotate else grid


def shuffled(shape: Shape, random: np.random.Generator) -> np.ndarray:
    """The usual shuffle, dealt out without looking at clusters or lengths."""
    rows = shape.unit_rows()
    cell = np.repeat(np.arange(rows.size), rows.ravel())
    chosen = np.empty(shape.examples, dtype=np.int64)
    chosen[random.permutation(shape.examples)] = cell
    return shape.grid(chosen // shape.ranks, chosen % shape.ranks)
