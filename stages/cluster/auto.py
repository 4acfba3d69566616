"""How many clusters? As many as say something that the other half of the data confirms.

A sample is split into halves, each is mapped by itself, and both maps label both halves (stability under
resampling: Ben-Hur et al. 2002, Lange et al. 2004). Their agreement is the mutual information of the two
labels in nats, less what two unrelated maps of these cluster sizes would share by chance (Vinh et al.
2010). It grows as long as new clusters are new lessons, and falls once they divide noise, which each half
divides in its own way. An index between 0 and 1 would not do: two clusters that split unequal lessons into
large and small ones agree perfectly and say next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.cluster.assign import labels, nearest
from stages.cluster.fit import fit

SAMPLE = 6_000  # contents looked at, both halves together
_PER_CLUSTER = 5  # rows of a half that a cluster must have on average
_SPACING = 1.35  # ratio of neighbouring K
_KEPT = 0.98  # share of the most information that a smaller map may keep
_NOTHING = 0.05  # nats; two maps of noise agree about as much
_PAST, _ENOUGH = 0.5, 3  # so many numbers in a row below this share of the most end the search
_ITERATIONS = 30


@dataclass(frozen=True)
class Choice:
    """K and why.

    Attributes:
        clusters: the number chosen.
        reason: one line for people.
        curve: [{"clusters", "information", "similarity"}]: nats that the two maps share beyond
            chance, and the mean cosine of a row to the nearest centroid of the other half's map.
    """

    clusters: int
    reason: str
    curve: list[dict[str, Any]]


def choose(sample_SD: np.ndarray, weight_S: np.ndarray, seed: int) -> Choice:
    """K for a sample of unit rows, float32, in an order that has nothing to do with their content."""
    curve = measure(sample_SD, weight_S, seed)
    if not curve:
        reason = f"one cluster: {len(sample_SD)} examples are too few to compare numbers"
        return Choice(1, reason, [])
    best, tried = _best(curve), f"{curve[0]['clusters']} to {curve[-1]['clusters']} tried"
    if best["information"] < _NOTHING:
        reason = f"one cluster: maps of two halves of the data have nothing in common ({tried})"
        return Choice(1, reason, curve)
    chosen = curve[decide(curve)]
    reason = (
        f"{chosen['clusters']} clusters: maps of two halves of the data share "
        f"{chosen['information']:.2f} nats beyond chance, at best {best['information']:.2f} with "
        f"{best['clusters']} clusters ({tried})"
    )
    return Choice(chosen["clusters"], reason, curve)


def decide(curve: list[dict[str, Any]]) -> int:
    """Index of the smallest K that keeps nearly all the information."""
    enough = _KEPT * _best(curve)["information"]
    return next(at for at, point in enumerate(curve) if point["information"] >= enough)


def _best(curve: list[dict[str, Any]]) -> dict[str, Any]:
    return max(curve, key=lambda point: point["information"])


def measure(sample_SD: np.ndarray, weight_S: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """The curve of a ``Choice``; it ends where the information stays below half of its peak."""
    curve: list[dict[str, Any]] = []
    for pair in pairs(sample_SD, weight_S, seed):
        shared = float(np.mean([information(*both) for both in pair.labels]))
        curve.append(
            {
                "clusters": pair.clusters,
                "information": round(shared, 6),
                "similarity": round(pair.similarity, 6),
            }
        )
        most = _best(curve)["information"]
        if most >= _NOTHING and all(
            point["information"] < _PAST * most for point in curve[-_ENOUGH:]
        ):
            break
    return curve


@dataclass(frozen=True)
class Pair:
    """Two maps with K clusters, each fitted on one half.

    Attributes:
        clusters: K.
        labels: of each half, its own map's labels and those of the other half's map.
        similarity: mean cosine of a row to the nearest centroid of the other half's map.
    """

    clusters: int
    labels: list[tuple[np.ndarray, np.ndarray]]
    similarity: float


def pairs(sample_SD: np.ndarray, weight_S: np.ndarray, seed: int) -> Iterator[Pair]:
    """Pairs of maps, K ascending."""
    halves = [(sample_SD[at::2].copy(), weight_S[at::2]) for at in (0, 1)]
    for clusters in grid(len(halves[1][0])):
        first_KD, second_KD = (
            fit(half_SD, weight_H, clusters, seed + at, iterations=_ITERATIONS)
            for at, (half_SD, weight_H) in enumerate(halves)
        )
        labelled, cosines = [], []
        for (half_SD, weight_H), own, other in zip(
            halves, (first_KD, second_KD), (second_KD, first_KD), strict=True
        ):
            label_H, cosine_H = nearest(half_SD, other)
            labelled.append((labels(half_SD, own), label_H))
            cosines.append(float(np.average(cosine_H, weights=weight_H)))
        yield Pair(clusters, labelled, float(np.mean(cosines)))


def information(left: np.ndarray, right: np.ndarray) -> float:
    """Mutual information of two labellings in nats, less its expectation for shuffled labels."""
    from sklearn.metrics import mutual_info_score
    from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

    table = contingency_matrix(left, right, sparse=True)
    by_chance = expected_mutual_information(table, len(left))
    return float(mutual_info_score(left, right, contingency=table) - by_chance)


def grid(rows: int) -> list[int]:
    """Numbers of clusters worth trying on so many rows."""
    numbers, clusters = [], 2.0
    while round(clusters) <= rows // _PER_CLUSTER:
        numbers.append(round(clusters))
        clusters = max(clusters * _SPACING, clusters + 1)
    return numbers
