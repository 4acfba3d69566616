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
) -> None:
    """Changes ``unit`` in place; every rank keeps its examples.

    Args:
        unit: (M) micro-batch of each example.
        rank: (M) its rank.
        cluster: (M).
        tokens: (M).
        deviation_MD: (M, D) float32, weighted signatures minus their mean.
        shape: the plan's shape.
        random: the order of ranks inside a step.
    """
    stocks = [_Stock(np.flatnonzero(rank == r), tokens) for r in range(shape.ranks)]
    square_M = np.einsum("md,md->m", deviation_MD, deviation_MD)
    sum_D = np.zeros(deviation_MD.shape[1], dtype=np.float32)
    # Places in the order of training: step by step, ranks shuffled inside a step.
    step = unit // shape.accumulation
    order = np.lexsort((random.random(len(unit)), step))
    target, places = np.log(tokens[order]), unit[order].copy()
    holders: dict[int, int] = {}
    for at, before in enumerate(order.tolist()):
        if at and step[before] != step[order[at - 1]]:
            holders = {}
        own = int(rank[before])
        candidates = _free(stocks[own].near(float(target[at])), holders, cluster, own)
        cost = 2 * (deviation_MD[candidates] @ sum_D) + square_M[candidates]
        chosen = int(candidates[cost.argmin()])
        stocks[own].remove(chosen)
        holders[int(cluster[chosen])] = own
        sum_D += deviation_MD[chosen]
        unit[chosen] = places[at]


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
