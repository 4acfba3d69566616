"""Orders examples so that every global batch looks like the whole selection.

Greedy herding (Welling 2009; for the order of training GraB, Lu et al. 2022, and over several workers
CD-GraB, Cooper et al. 2023): the next example is the one that keeps the running sum of deviations from
the mean smallest. Here the vectors are signatures known beforehand, so training pays nothing for it.

A plan that is matched in length and disjoint comes in; each place in it is filled anew, in the order
of training, from the examples its rank still has, near in length to the one that stood there.
"""

from __future__ import annotations

import numpy as np

from stages.allocate.shape import Shape

WINDOW = 64  # candidates for a place
_NEAR = 0.1  # relative difference in length to the one that stood there
_DIMS = 512  # longer vectors are projected (Johnson and Lindenstrauss 1984)


def herd(
    unit: np.ndarray,
    rank: np.ndarray,
    cluster: np.ndarray,
    tokens: np.ndarray,
    deviation_MD: np.ndarray,
    shape: Shape,
    random: np.random.Generator,
    budget: int = 0,
) -> None:
    """Changes ``unit`` in place; every rank keeps its examples, every micro-batch its number of them.

    Args:
        unit: (M) micro-batch of each example.
        rank: (M) its rank.
        cluster: (M).
        tokens: (M).
        deviation_MD: (M, D) float32, weighted signatures minus their mean.
        shape: the plan's shape.
        random: the order of ranks inside a step.
        budget: padded tokens that a micro-batch may have; 0 without.
    """
    stocks = [_Stock(np.flatnonzero(rank == r), tokens) for r in range(shape.ranks)]
    square_M = np.einsum("md,md->m", deviation_MD, deviation_MD)
    sum_D = np.zeros(deviation_MD.shape[1], dtype=np.float32)
    # Places in the order of training: step by step, ranks shuffled inside a step.
    step = unit // shape.accumulation
    occupant = np.lexsort((random.random(len(unit)), step))
    places = _Places(occupant, tokens, _limits(unit, rank, tokens, budget)[occupant])
    target = np.log(tokens[occupant])
    units, steps, owners = unit[occupant], step[occupant].tolist(), rank[occupant].tolist()
    holders: dict[int, int] = {}
    for at, own in enumerate(owners):
        if at and steps[at] != steps[at - 1]:
            holders = {}
        candidates = _free(stocks[own].near(float(target[at])), holders, cluster, own)
        candidates = places.fitting(at, candidates)
        cost = 2 * (deviation_MD[candidates] @ sum_D) + square_M[candidates]
        chosen = int(candidates[cost.argmin()])
        stocks[own].remove(chosen)
        holders[int(cluster[chosen])] = own
        sum_D += deviation_MD[chosen]
        unit[chosen] = units[at]
        places.put(at, chosen)


def _limits(unit: np.ndarray, rank: np.ndarray, tokens: np.ndarray, budget: int) -> np.ndarray:
    """(M) tokens that an example in each one's place may have."""
    if not budget:
        return np.full(len(unit), int(tokens.max()), dtype=np.int64)
    _, cell, rows = np.unique(
        unit * (int(rank.max()) + 1) + rank, return_inverse=True, return_counts=True
    )
    return np.where(rows > 1, budget // rows, int(tokens.max()))[cell]


class _Places:
    """Who stands where, so that an exchange never breaks the budget of either place."""

    def __init__(self, occupant: np.ndarray, tokens: np.ndarray, limit: np.ndarray) -> None:
        self._occupant, self._tokens, self._limit = occupant.copy(), tokens, limit
        self._at = np.empty(len(occupant), dtype=np.int64)
        self._at[occupant] = np.arange(len(occupant))

    def fitting(self, at: int, candidates: np.ndarray) -> np.ndarray:
        """Those that fit, and whose own place would fit who stands here; who stands here if none."""
        here = self._occupant[at]
        fits = self._tokens[candidates] <= self._limit[at]
        fits &= self._limit[self._at[candidates]] >= self._tokens[here]
        return candidates[fits] if fits.any() else np.array([here])

    def put(self, at: int, example: int) -> None:
        """The example comes here, and who stood here goes where it was."""
        here, there = self._occupant[at], self._at[example]
        self._occupant[at], self._occupant[there] = example, here
        self._at[example], self._at[here] = at, there


def _free(
    near: tuple[np.ndarray, np.ndarray], holders: dict[int, int], cluster: np.ndarray, own: int
) -> np.ndarray:
    """Those near enough in length whose cluster no other rank holds; the nearest such one when none
    is near enough; and when all are held, those near enough.
    """
    examples, distance = near
    free = np.array([holders.get(c, own) == own for c in cluster[examples].tolist()])
    if free.any():
        examples, distance = examples[free], distance[free]
    return examples[distance <= max(_NEAR, float(distance.min()))]


def deviations(
    vector_MD: np.ndarray, weight: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """Weighted vectors minus their mean, (M, D') float32, projected when they are long."""
    if vector_MD.shape[1] > _DIMS:
        project_Dd = random.standard_normal((vector_MD.shape[1], _DIMS), dtype=np.float32)
        vector_MD = vector_MD @ (project_Dd / np.float32(np.sqrt(_DIMS)))
    weighted_MD = vector_MD * weight[:, None].astype(np.float32)
    return weighted_MD - weighted_MD.mean(axis=0, dtype=np.float64).astype(np.float32)


class _Stock:
    """What a rank has left, sorted by length."""

    def __init__(self, examples: np.ndarray, tokens: np.ndarray) -> None:
        length = np.log(tokens[examples])
        order = np.argsort(length, kind="stable")
        self._examples, self._length = examples[order], length[order]

    def near(self, target: float) -> tuple[np.ndarray, np.ndarray]:
        """Up to ``WINDOW`` examples around a logarithm of length, and how far each is from it."""
        at = int(np.searchsorted(self._length, target))
        low = max(0, min(at - WINDOW // 2, len(self._length) - WINDOW))
        part = slice(low, low + WINDOW)
        return self._examples[part], np.abs(self._length[part] - target)

    def remove(self, example: int) -> None:
        at = int(np.flatnonzero(self._examples == example)[0])
        self._examples = np.delete(self._examples, at)
        self._length = np.delete(self._length, at)
