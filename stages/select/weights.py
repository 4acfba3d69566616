"""Loss weights that give every cluster its share of the whole dataset (DESIGN section 6)."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.select.pool import Pool


def share_weights(pool: Pool, chosen: np.ndarray) -> np.ndarray:
    """w = (n / N) / (m / M) for each selected example, (M) float64; they average 1.

    n of the N rows are of the example's stratum and cluster, duplicates counted, and m of the M selected
    ones are. So every stratum and every cluster counts by its share of the dataset. Without strata it is
    DESIGN's w = (n_c / N) / (m_c / M).

    Where a small budget leaves a stratum of a cluster without any example, the cluster's other strata
    stand for its rows, in proportion to theirs: the cluster keeps its share, and the stratum loses some.
    N counts the clusters that are represented: with fewer examples than clusters the others' shares
    cannot be restored, and the weights still average 1.

    Args:
        pool: what there was to choose from.
        chosen: (M) pool indices.
    """
    size_SK, chosen_SK = pool.count(), pool.count(chosen)
    represented_SK = chosen_SK > 0
    kept_SK = np.where(represented_SK, size_SK, 0)
    kept_K = np.maximum(kept_SK.sum(axis=0), 1)
    mass_SK = kept_SK * (size_SK.sum(axis=0) / kept_K)
    share_SK = mass_SK / mass_SK.sum()
    weight_SK = share_SK * len(chosen) / np.maximum(chosen_SK, 1)
    return weight_SK.ravel()[pool.cell[chosen]]


def effective(weight_M: np.ndarray) -> dict[str, Any]:
    """Effective sample size (sum w)^2 / sum w^2 (Kish 1965), and its fraction of M."""
    size = float(weight_M.sum() ** 2 / (weight_M**2).sum())
    return {
        "effective_sample_size": round(size, 3),
        "ess_fraction": round(size / len(weight_M), 6),
    }
