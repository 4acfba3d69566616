"""The figures by which plans are compared."""

from __future__ import annotations

from typing import Any

import numpy as np

_PAIRS = 20_000_000  # pairs of ranks looked at, over all steps; beyond it steps are sampled


def figures(grid: np.ndarray, cluster: np.ndarray, tokens: np.ndarray) -> dict[str, Any]:
    """What a plan means for training.

    Args:
        grid: (S, A, R, m) example indices, -1 where empty.
        cluster: (M).
        tokens: (M).

    Returns:
        ``shared_cluster``: chance that two ranks hold the same cluster in a step;
        ``clusters_per_batch``: distinct clusters in a step, on average;
        ``padded_ratio_mean``, ``padded_ratio_worst``: padded tokens of a step, largest rank over mean
        rank, over the full steps; ``waiting``: predicted share of rank time spent waiting for the
        slowest, if time goes with padded tokens; ``padding``: share of padded tokens that are padding.
    """
    clusters = int(cluster.max()) + 1
    held = _held(grid, cluster)
    padded_SR = padded_tokens(grid, tokens)
    full = (grid >= 0).all(axis=(1, 2, 3))
    looked_SR = padded_SR[full] if full.any() else padded_SR
    ratio_S = looked_SR.max(axis=1) / looked_SR.mean(axis=1)
    most = padded_SR.max(axis=1).sum()
    real = tokens[grid[grid >= 0]].sum(dtype=np.int64)
    return {
        "shared_cluster": round(_shared(held, grid, clusters), 6),
        "clusters_per_batch": round(_clusters_per_batch(held, grid), 3),
        "padded_ratio_mean": round(float(ratio_S.mean()), 5),
        "padded_ratio_worst": round(float(ratio_S.max()), 5),
        "waiting": round(float(1 - padded_SR.mean(axis=1).sum() / most), 5),
        "padding": round(float(1 - real / padded_SR.sum()), 5),
    }


def in_signature_space(
    grid: np.ndarray, vector_MD: np.ndarray, weight: np.ndarray
) -> dict[str, float]:
    """What a plan means in signature space.

    Args:
        grid: (S, A, R, m) example indices, -1 where empty.
        vector_MD: (M, D) unit signatures, float32.
        weight: (M) loss weights.

    Returns:
        ``rank_cosine``: mean cosine between the mean signatures of two ranks in a step;
        ``batch_variance``: mean squared distance of a full step's weighted mean signature to the whole
        selection's.
    """
    ranks = grid.shape[2]
    mean_D = (weight[:, None] * vector_MD).mean(axis=0)
    cosines, distances = [], []
    for step in grid:
        held = np.moveaxis(step, 1, 0).reshape(ranks, -1)
        filled = held >= 0
        sums_RD = (vector_MD[held] * filled[:, :, None]).sum(axis=1)
        length_R = np.linalg.norm(sums_RD, axis=1)
        unit_RD = sums_RD[length_R > 0] / length_R[length_R > 0, None]
        count = len(unit_RD)
        if count > 1:
            total = unit_RD.sum(axis=0)
            cosines.append((total @ total - count) / (count * (count - 1)))
        if filled.all():
            batch_D = (weight[held.ravel(), None] * vector_MD[held.ravel()]).mean(axis=0)
            distances.append(((batch_D - mean_D) ** 2).sum())
    return {
        "rank_cosine": round(float(np.mean(cosines)) if cosines else 0.0, 6),
        "batch_variance": float(np.mean(distances)) if distances else 0.0,
    }


def padded_tokens(grid: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """(S, R) int64: rows times the longest of them, summed over a step's micro-batches."""
    filled = grid >= 0
    longest = np.where(filled, tokens[grid], 0).max(axis=3).astype(np.int64)
    return (longest * filled.sum(axis=3)).sum(axis=1)


def shared_cluster(grid: np.ndarray, cluster: np.ndarray) -> float:
    """Chance that two different ranks, at a random step, hold at least one common cluster."""
    return _shared(_held(grid, cluster), grid, int(cluster.max()) + 1)


def _shared(held: np.ndarray, grid: np.ndarray, clusters: int) -> float:
    steps, ranks = grid.shape[0], grid.shape[2]
    step_cluster = held // ranks
    if ranks < 2 or not (step_cluster[1:] == step_cluster[:-1]).any():
        return 0.0
    count = max(1, min(steps, _PAIRS // ranks**2))
    looked = np.unique(np.linspace(0, steps - 1, count).astype(np.int64))
    edges = np.searchsorted(held, np.stack([looked, looked + 1]) * clusters * ranks)
    common = sum(_common_pairs(held[low:high], ranks) for low, high in edges.T)
    return common / (len(looked) * ranks * (ranks - 1) / 2)


def _common_pairs(held: np.ndarray, ranks: int) -> int:
    """Pairs of ranks with a common cluster, from one step's sorted (cluster, rank) keys."""
    _, cluster = np.unique(held // ranks, return_inverse=True)
    present = np.zeros((ranks, int(cluster.max(initial=0)) + 1), dtype=np.float32)
    present[held % ranks, cluster] = 1
    together = present @ present.T > 0
    return int((together.sum() - np.trace(together)) // 2)


def _held(grid: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """Sorted distinct keys (step * clusters + cluster) * ranks + rank of all that is held."""
    steps, _, ranks, _ = grid.shape
    filled = grid >= 0
    step = np.broadcast_to(np.arange(steps)[:, None, None, None], grid.shape)[filled]
    rank = np.broadcast_to(np.arange(ranks)[None, None, :, None], grid.shape)[filled]
    keys = (step * (int(cluster.max()) + 1) + cluster[grid[filled]]) * ranks + rank
    keys.sort()  # faster than numpy's own unique
    return keys[np.diff(keys, prepend=-1) > 0]


def _clusters_per_batch(held: np.ndarray, grid: np.ndarray) -> float:
    step_cluster = held // grid.shape[2]
    return (1 + int((step_cluster[1:] != step_cluster[:-1]).sum())) / grid.shape[0]
