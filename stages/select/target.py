"""Targeted mode: prefer what helps with a small set of wanted examples, after LESS (Xia et al. 2024).

LESS ranks examples by their influence on a validation set: the mean cosine of gradients over the
examples of a subtask, and of these the largest over all subtasks. The map supplies the subtasks: every
wanted example belongs to its nearest centroid, as a row would. So with T_c the wanted examples at
cluster c,

* the alignment of a row x is max over c of mean over t in T_c of cos(x, t), in the map's own centred
  space (what every example teaches, mostly format, says nothing about the wanted ones). A mean of
  cosines of unit rows is one dot product with their mean, so nothing of rows x wanted examples is held;
* the budget is shared over clusters in proportion to |T_c|. Plain LESS has no quotas, and a budget can
  go to the one subtask that is easiest to align with;
* within a cluster, the best aligned come first. When all wanted clusters are used up, so do the best
  aligned of all others.

The mix of the data is changed on purpose, so there is no share to restore: all weights are 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from formats.clusters import Clusters
from formats.errors import ArtifactError
from formats.signatures import OK, TRUNCATED, Signatures
from stages.select import vectors
from stages.select.budget import Choose
from stages.select.members import outliers, ranked, take
from stages.select.pool import Pool
from stages.select.quotas import fill, needed
from stages.select.settings import Settings

_DIGITS = 7  # float32 rows tell no more; ties that only rounding would break are broken by id


@dataclass(frozen=True)
class Target:
    """The wanted examples, as the map sees them.

    Attributes:
        count_K: (K) int64, the wanted examples that are nearest to each centroid.
        alignment: (P) float64, of the pool's rows; see above.
    """

    count_K: np.ndarray
    alignment: np.ndarray

    def stats(self, chosen: np.ndarray) -> dict[str, Any]:
        """Figures for the header."""
        return {
            "examples": int(self.count_K.sum()),
            "clusters": int((self.count_K > 0).sum()),
            "alignment": round(float(self.alignment[chosen].mean()), 6),
            "alignment_of_all": round(float(self.alignment.mean()), 6),
        }


def read_target(path: Path, clusters: Clusters, pool: Pool, given: Path | None) -> Target:
    """Reads the wanted examples, then every signature of the pool once.

    Args:
        path: a ``signatures.zarr`` of the map's signature space.
        clusters: the map.
        pool: its rows.
        given: where the map's signatures are, if not where the map says.

    Raises:
        ArtifactError: the wanted signatures are of another space (the fields that differ are named) or
            hold no usable row; or see ``vectors.load``.
    """
    wanted = Signatures.open(path)
    clusters.check_space(wanted, "score the wanted examples with the map's model and settings")
    mean_GD, count_K = _means(wanted, clusters)
    alignment_U = np.zeros(int(pool.distinct.sum()))
    for place, block_BD in vectors.stream(clusters, pool, given):
        alignment_U[place] = (block_BD @ mean_GD.T).max(axis=1).round(_DIGITS)
    return Target(count_K, alignment_U[np.cumsum(pool.distinct) - 1])


def targeted(pool: Pool, target: Target, settings: Settings) -> Choose:
    """From a number of examples to pool indices; see above. ``min_per_cluster`` and examples to be
    included count toward the quotas, in wanted clusters and in others.
    """
    least_K = needed(pool, settings.min_per_cluster)
    distinct_K = pool.count(pool.distinct)[0]
    wanted_K = target.count_K > 0
    capacity_K = np.where(wanted_K, distinct_K, least_K)
    appetite_K = np.maximum(target.count_K, 1)
    order = ranked(pool, -target.alignment, settings.trim)
    rest = np.lexsort((-target.alignment, outliers(pool, settings.trim), pool.copy))

    def choose(count: int) -> np.ndarray:
        first = min(count, int(capacity_K.sum()))
        chosen = take(pool, order, fill(capacity_K, appetite_K, first, least_K)[None, :])
        left = rest[~np.isin(rest, chosen)]
        return np.concatenate([chosen, left[: count - first]])

    return choose


def _means(wanted: Signatures, clusters: Clusters) -> tuple[np.ndarray, np.ndarray]:
    """(G, D) float64 mean centred unit row of the wanted examples of each cluster that has any, and how
    many each of the (K) clusters has. In float64, so that block size and threads do not show.
    """
    centroid_KD = clusters.column("centroid").astype(np.float64)
    centre_D, status = clusters.column("centre"), wanted.column("status")
    sum_KD, count_K = np.zeros_like(centroid_KD), np.zeros(len(centroid_KD), dtype=np.int64)
    for part, block_BD in wanted.stream():
        usable_B = (status[part] == OK) | (status[part] == TRUNCATED)
        unit_BD = vectors.centred(block_BD[usable_B], centre_D).astype(np.float64)
        label_B = (unit_BD @ centroid_KD.T).round(_DIGITS).argmax(axis=1)
        np.add.at(sum_KD, label_B, unit_BD)
        count_K += np.bincount(label_B, minlength=len(count_K))
    if not count_K.any():
        raise ArtifactError(f"{wanted.path} has no usable row: nothing to aim at")
    wanted_K = count_K > 0
    return sum_KD[wanted_K] / count_K[wanted_K, None], count_K
