"""How many clusters? As many as two halves of the data agree on.

A sample is split into halves, each is mapped by itself, and both maps label both halves (stability under
resampling: Ben-Hur et al. 2002, Lange et al. 2004). Two figures are read off for every K:

* *information*: mutual information of the two labels in nats, less what two unrelated maps of these cluster
  sizes would share by chance (Vinh et al. 2010). It grows as long as new clusters are new lessons.
* *agreement*: the adjusted Rand index (Hubert and Arabie 1985). It is high where no cluster's border runs
  through a lesson.

Agreement alone is no guide: two clusters that split unequal lessons into large and small ones agree
perfectly and say next to nothing. So of all K that say at least half of what can be said, the one with the
highest agreement is taken, the larger where two are as good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.cluster.assign import labels
from stages.cluster.join import Tree, fine_map, fine_number, narrow

SAMPLE = 6_000  # contents looked at, both halves together
_SPACING = 1.25  # ratio of neighbouring K
_SAYS = 0.5  # share of the most information that K clusters must have
_EQUAL = 0.01  # agreements that differ by less are equal
_NOTHING = 0.1  # agreement; two maps of noise reach a few hundredths


@dataclass(frozen=True)
class Choice:
    """K and why.

    Attributes:
        clusters: the number chosen.
        reason: one line for people.
        curve: [{"clusters", "information", "agreement"}], K ascending.
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
    tried = f"{curve[0]['clusters']} to {curve[-1]['clusters']} tried"
    chosen = curve[decide(curve)]
    if chosen["agreement"] < _NOTHING:
        reason = f"one cluster: maps of two halves of the data have nothing in common ({tried})"
        return Choice(1, reason, curve)
    reason = (
        f"{chosen['clusters']} clusters: there the maps of two halves of the data agree best "
        f"(adjusted Rand index {chosen['agreement']:.2f}; {tried})"
    )
    return Choice(chosen["clusters"], reason, curve)


def decide(curve: list[dict[str, Any]]) -> int:
    """Index of the K that is taken."""
    enough = _SAYS * most_information(curve)
    agreement = np.array(
        [point["agreement"] if point["information"] >= enough else -1.0 for point in curve]
    )
    return int(np.flatnonzero(agreement >= agreement.max() - _EQUAL)[-1])


def most_information(curve: list[dict[str, Any]]) -> float:
    """The highest information on the curve, nats."""
    return float(max(point["information"] for point in curve))


def measure(sample_SD: np.ndarray, weight_S: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """The curve of a ``Choice``; empty where the halves are too small."""
    from sklearn.metrics import adjusted_rand_score

    curve = []
    for clusters, pairs in labelled(narrow(sample_SD, seed), weight_S, seed):
        point: dict[str, Any] = {"clusters": clusters}
        for name, figure in (("information", information), ("agreement", adjusted_rand_score)):
            point[name] = round(float(np.mean([figure(*pair) for pair in pairs])), 6)
        curve.append(point)
    return curve


def labelled(
    narrow_SN: np.ndarray, weight_S: np.ndarray, seed: int
) -> Iterator[tuple[int, list[tuple[np.ndarray, np.ndarray]]]]:
    """K ascending, and of each half the labels by its own map and by the other half's."""
    halves = [narrow_SN[at::2].copy() for at in (0, 1)]
    most = fine_number(len(halves[1]), len(halves[1]))
    if most < 2:
        return
    maps = [
        fine_map(half_SN, weight_S[at::2], most, seed + at) for at, half_SN in enumerate(halves)
    ]
    trees = [Tree(fine_FN) for fine_FN in maps]
    fine = [[labels(half_SN, fine_FN) for fine_FN in maps] for half_SN in halves]
    for clusters in grid(min(tree.leaves for tree in trees)):
        groups = [tree.cut(clusters) for tree in trees]
        yield clusters, [(groups[0][left], groups[1][right]) for left, right in fine]


def information(left: np.ndarray, right: np.ndarray) -> float:
    """Mutual information of two labellings in nats, less its expectation for shuffled labels."""
    from sklearn.metrics import mutual_info_score
    from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

    table = contingency_matrix(left, right, sparse=True)
    by_chance = expected_mutual_information(table, len(left))
    return float(mutual_info_score(left, right, contingency=table) - by_chance)


def grid(most: int) -> list[int]:
    """Numbers of clusters worth trying, from 2 to at most the number of fine ones."""
    numbers, clusters = [], 2.0
    while round(clusters) <= most:
        numbers.append(round(clusters))
        clusters = max(clusters * _SPACING, clusters + 1)
    return numbers
