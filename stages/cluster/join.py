"""Clusters joined from finer ones, so that a large lesson is one cluster and a small one is another.

k-means alone divides what is frequent and lumps together what is rare: its centroids follow the density of
the rows. So a finer map is fitted first, and its clusters are joined by average linkage (Sokal and Michener
1958): the pair whose members lie nearest to each other on average, again and again. What comes out are K
mean directions, a map like any other. Measured with the lessons known, adjusted Rand index at equal K,
k-means and joined clusters: word problems by operators 0.54 and 0.84 to 0.91 (K = 20), the practice bank
by skills 0.35 and 0.80 (16); ``tests/benchmarks/joining.py``. Lloyd rounds afterwards undo it, so there
are none.

Shapes: S sampled contents, D numbers of a signature, N of a narrowed one, F fine clusters, K clusters.
"""

from __future__ import annotations

import numpy as np

from stages.cluster.assign import labels, middles, sums
from stages.cluster.fit import fit, parts

_NARROW = 512  # numbers a row is projected to where only the grouping of rows is looked for
_PER_FINE = 8  # rows a fine cluster must have on average
_FINE = 512  # fine clusters, at least
_TIMES, _MOST = 4, 1_024  # so many for each cluster that is wanted, up to a limit
_LESSON = 32  # and one for so many rows: a smaller lesson may be lost in a fine cluster of others
_WORTH = 2  # with fewer for each, joining them changes next to nothing
_ITERATIONS = 30


def fine_number(rows: int, clusters: int) -> int:
    """How many fine clusters so many rows afford, when so many clusters are wanted."""
    wanted = max(_FINE, min(_TIMES * clusters, _MOST), rows // _LESSON)
    return min(wanted, rows // _PER_FINE)


def fit_joined(
    sample_SD: np.ndarray, weight_S: np.ndarray, clusters: int, seed: int, *, tries: int = 1
) -> np.ndarray:
    """Unit centroids (K', D) float32; K' < K when there are fewer distinct directions.

    Where there are too few rows, or too many clusters, for a map at least twice as fine, it is k-means.

    Args:
        sample_SD: unit rows, float32.
        weight_S: how often each row counts, whole numbers.
        clusters: K.
        seed: of the fine map.
        tries: of k-means, see ``fit``.
    """
    wanted = fine_number(len(sample_SD), clusters)
    if wanted < _WORTH * clusters:
        return fit(sample_SD, weight_S, clusters, seed, tries=tries)
    narrow_SN = narrow(sample_SD, seed)
    fine_FN = fine_map(narrow_SN, weight_S, wanted, seed)
    if len(fine_FN) <= clusters:  # hardly any distinct directions
        return fit(sample_SD, weight_S, clusters, seed, tries=tries)
    label_S = Tree(fine_FN).cut(clusters)[labels(narrow_SN, fine_FN)]
    total_KD = np.zeros((clusters, sample_SD.shape[1]))
    for part in parts(len(sample_SD)):
        total_KD += sums(sample_SD[part], weight_S[part], label_S[part], clusters)
    centroid_KD = middles(total_KD, np.zeros(total_KD.shape, dtype=np.float32))
    return centroid_KD[centroid_KD.any(axis=1)]


def fine_map(narrow_SN: np.ndarray, weight_S: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """(F, N) float32 unit centroids by k-means, F at most ``clusters``."""
    return fit(narrow_SN, weight_S, clusters, seed, iterations=_ITERATIONS)


def narrow(sample_SD: np.ndarray, seed: int) -> np.ndarray:
    """Unit rows of fewer numbers whose cosines are nearly the same, float32.

    A Gaussian matrix keeps cosines within about 1 / sqrt(512) (Johnson and Lindenstrauss 1984): far less
    than what parts rows of one lesson, and it makes the fine map several times faster.
    """
    dims = sample_SD.shape[1]
    if dims <= _NARROW:
        return sample_SD
    matrix_DN = np.random.default_rng(seed).standard_normal((dims, _NARROW), dtype=np.float32)
    narrow_SN = sample_SD @ matrix_DN
    length_S1 = np.linalg.norm(narrow_SN, axis=1, keepdims=True)
    return narrow_SN / np.where(length_S1 > 0, length_S1, 1)


class Tree:
    """Which fine clusters are joined first.

    Args:
        fine_FN: their unit centroids.
    """

    def __init__(self, fine_FN: np.ndarray) -> None:
        from scipy.cluster.hierarchy import linkage

        self.leaves = len(fine_FN)
        self._merges = linkage(fine_FN.astype(np.float64), "average")[:, :2].astype(int)

    def cut(self, clusters: int) -> np.ndarray:
        """(F) int64: the joined cluster of each fine one, when ``clusters`` are left."""
        group_F = np.arange(self.leaves)
        members = {leaf: [leaf] for leaf in range(self.leaves)}
        for number, (left, right) in enumerate(self._merges[: self.leaves - clusters].tolist()):
            members[self.leaves + number] = members.pop(left) + members.pop(right)
        for number, leaves in enumerate(members.values()):
            group_F[leaves] = number
        return group_F
