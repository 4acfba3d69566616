"""How far the unnormalised signatures of a cluster lie from their mean.

Quotas that minimise the variance of the weighted gradient need it (Neyman 1934): a cluster whose
examples all pull the same way is known from few of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.threads import one_thread


@dataclass(frozen=True)
class Sample:
    """Sampled contents after centring: their unnormalised signature is
    ``norm * (centre + length * row)``.

    Attributes:
        row_SD: (S, D) float32, centred unit rows.
        length_S: (S) float32, lengths before they were normalised.
        weight_S: (S) float64, multiplicities.
        norm_S: (S) float32, lengths of the projected gradients.
        label_S: (S) int32.
    """

    row_SD: np.ndarray
    length_S: np.ndarray
    weight_S: np.ndarray
    norm_S: np.ndarray
    label_S: np.ndarray


def spread(sample: Sample, centre_D: np.ndarray, clusters: int) -> np.ndarray:
    """Root mean square distance to the cluster's mean, (K) float32; 0 where nothing was sampled."""
    result_K = np.zeros(clusters, dtype=np.float32)
    order = np.argsort(sample.label_S, kind="stable")
    edges = np.searchsorted(sample.label_S[order], np.arange(clusters + 1))
    with one_thread():
        for cluster in range(clusters):
            members = order[edges[cluster] : edges[cluster + 1]]
            if len(members):
                result_K[cluster] = np.sqrt(_variance(sample, members, centre_D))
    return result_K


def _variance(sample: Sample, members: np.ndarray, centre_D: np.ndarray) -> float:
    share_B = sample.weight_S[members] / sample.weight_S[members].sum()
    norm_B = sample.norm_S[members].astype(np.float64)
    length_B = sample.length_S[members].astype(np.float64)
    mean_D = centre_D * (share_B @ norm_B)
    for start in range(0, len(members), 1024):
        part = slice(start, start + 1024)
        scale_B = share_B[part] * norm_B[part] * length_B[part]
        mean_D = mean_D + scale_B @ sample.row_SD[members[part]].astype(np.float64)
    return max(0.0, float(share_B @ norm_B**2 - mean_D @ mean_D))
