"""The strategies: from a selection and a shape to one grid per epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from formats.errors import SettingError
from formats.selection import Selection
from stages.allocate import ownership
from stages.allocate.herding import deviations, herd
from stages.allocate.levelling import level_out
from stages.allocate.matching import place
from stages.allocate.rearrangement import rearrange, take_turns
from stages.allocate.report import figures
from stages.allocate.separation import meetings, separate
from stages.allocate.shape import Shape

STRATEGIES = ("disjoint", "interleaved", "balanced", "random")
_TOLERANCES = (
    0.1,
    0.02,
)  # of length, tried one after the other where whole clusters do not balance
_SMALL = 100_000  # examples; larger plans have clusters enough
_LARGE = 1_000_000  # examples; trying more tolerances would take minutes
_BALANCED = 1.02  # padded tokens, largest rank over mean, that need no improvement


def plan(
    selection: Selection,
    shape: Shape,
    strategy: str,
    *,
    epochs: int,
    seed: int,
    rotate: bool,
    vectors: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """One grid (S, A, R, m) int32 per epoch; equal arguments give equal grids.

    Args:
        selection: what is shared out.
        shape: over what.
        strategy: ``disjoint``: each cluster on one rank; ``interleaved``: each cluster dealt over all
            ranks; ``balanced``: as disjoint, and every global batch like the whole selection;
            ``random``: the usual shuffle.
        epochs: passes.
        seed: other seeds, other plans.
        rotate: in epoch e rank r takes over what rank r - e owned in the first.
        vectors: (M, D) float32 signatures, which ``balanced`` needs.

    Raises:
        SettingError: there is no such strategy, or ``balanced`` has no vectors.
    """
    if strategy not in STRATEGIES:
        raise SettingError(
            f"there is no strategy {strategy!r}", fix=f"use one of {', '.join(STRATEGIES)}"
        )
    cluster, tokens = selection.cluster, selection.tokens
    if strategy == "balanced":
        if vectors is None:
            raise SettingError("balanced needs signatures", fix="use another strategy")
        away = deviations(vectors, selection.weight, np.random.default_rng([seed, 3]))
    first = None
    if strategy in ("disjoint", "balanced"):
        first = _best(cluster, tokens, shape, seed)
        rank = first.rank
    elif strategy == "interleaved":
        rank = ownership.interleaved(cluster, tokens, shape, np.random.default_rng([seed, 0]))
    for epoch in range(epochs):
        random = np.random.default_rng([seed, 1, epoch])
        if strategy == "random":
            grid = shuffled(shape, random)
        else:
            if first is not None and epoch == 0:
                unit = first.unit
            else:
                apart = first is not None
                unit = _timed(rank, cluster, tokens, shape, random, apart=apart)
            if strategy == "balanced":
                order = np.random.default_rng([seed, 4, epoch])
                herd(unit, rank, cluster, tokens, away, shape, order)
            grid = shape.grid(unit, rank)
        yield np.roll(grid, epoch, axis=2) if rotate else grid


@dataclass(frozen=True)
class _First:
    """Owners and first epoch of a plan, with its score: the smaller, the better."""

    rank: np.ndarray
    unit: np.ndarray
    score: tuple[float, float]


def _best(cluster: np.ndarray, tokens: np.ndarray, shape: Shape, seed: int) -> _First:
    """Owners by whole clusters, or with examples moved where that makes ranks wait less.

    Moving examples only pays when they can still be kept apart from the rest of their cluster, so the
    plans are made and compared: fewest meetings of ranks on a cluster first, then balance.
    """
    whole = ownership.disjoint(cluster, tokens, shape, np.random.default_rng([seed, 0]))
    best = _first(whole, cluster, tokens, shape, seed)
    for tolerance in _TOLERANCES if shape.examples <= _LARGE else _TOLERANCES[-1:]:
        if best.score[1] <= _BALANCED:
            break
        moved = whole.copy()
        level_out(moved, cluster, tokens, shape, tolerance)
        best = min(best, _first(moved, cluster, tokens, shape, seed), key=lambda one: one.score)
    return best


def _first(
    rank: np.ndarray, cluster: np.ndarray, tokens: np.ndarray, shape: Shape, seed: int
) -> _First:
    random = np.random.default_rng([seed, 1, 0])
    unit = _timed(rank, cluster, tokens, shape, random, apart=True)
    found = figures(shape.grid(unit, rank), cluster, tokens)
    return _First(rank, unit, (round(found["shared_cluster"], 3), found["padded_ratio_mean"]))


def _timed(
    rank: np.ndarray,
    cluster: np.ndarray,
    tokens: np.ndarray,
    shape: Shape,
    random: np.random.Generator,
    *,
    apart: bool,
) -> np.ndarray:
    """Units of one epoch for given owners; ``apart`` keeps the parts of split clusters apart."""
    unit = place(rank, cluster, tokens, shape, random)
    if apart:
        rearrange(unit, rank, cluster, tokens, shape)
        separate(unit, rank, cluster, tokens, shape)
        if shape.examples <= _SMALL and meetings(unit, rank, cluster, shape):
            take_turns(unit, rank, cluster, tokens, shape, random)
            separate(unit, rank, cluster, tokens, shape)
    return unit


def shuffled(shape: Shape, random: np.random.Generator) -> np.ndarray:
    """The usual shuffle, dealt out without looking at clusters or lengths."""
    rows = shape.unit_rows()
    cell = np.repeat(np.arange(rows.size), rows.ravel())
    chosen = np.empty(shape.examples, dtype=np.int64)
    chosen[random.permutation(shape.examples)] = cell
    return shape.grid(chosen // shape.ranks, chosen % shape.ranks)
