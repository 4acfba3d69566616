"""Loss weights that give every cluster its share of the whole dataset (DESIGN section 6)."""

from __future__ import annotations

from typing import Any

import numpy as np


def cluster_weights(label_M: np.ndarray, size_K: np.ndarray) -> np.ndarray:
    """w = (n_c / N) / (m_c / M) for each selected example, (M) float64; they average 1.

    N counts the clusters that are represented: with a budget smaller than the number of clusters the
    others' shares cannot be restored, and the weights still average 1.

    Args:
        label_M: (M) clusters of the selected examples.
        size_K: (K) rows of each cluster, duplicates counted.
    """
    chosen_K = np.bincount(label_M, minlength=len(size_K))
    represented = chosen_K > 0
    share_K = size_K / size_K[represented].sum()
    weight_K = np.zeros(len(size_K))
    weight_K[represented] = share_K[represented] * len(label_M) / chosen_K[represented]
    return weight_K[label_M]


def effective(weight_M: np.ndarray) -> dict[str, Any]:
    """Effective sample size (sum w)^2 / sum w^2 (Kish 1965), and its fraction of M."""
    size = float(weight_M.sum() ** 2 / (weight_M**2).sum())
    return {
        "effective_sample_size": round(size, 3),
        "ess_fraction": round(size / len(weight_M), 6),
    }
