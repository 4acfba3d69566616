"""The figures by which plans are compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.allocate.deal import Deal

_PAIRS = 20_000_000  # pairs of ranks looked at, over all steps; beyond it steps are sampled


def figures(deal: Deal, cluster: np.ndarray, tokens: np.ndarray) -> dict[str, Any]:
    """What a plan means for training.

    Args:
        deal: the plan.
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
    held = _held(deal, cluster)
    padded_SR = padded_tokens(deal, tokens)
    full = deal.full()
    looked_SR = padded_SR[full] if full.any() else padded_SR
    ratio_S = looked_SR.max(axis=1) / looked_SR.mean(axis=1)
    most = padded_SR.max(axis=1).sum()
    real = tokens[deal.example].sum(dtype=np.int64)
    return {
        "shared_cluster": round(_shared(held, deal, clusters), 6),
        "clusters_per_batch": round(_clusters_per_batch(held, deal), 3),
        "padded_ratio_mean": round(float(ratio_S.mean()), 5),
        "padded_ratio_worst": round(float(ratio_S.max()), 5),
        "waiting": round(float(1 - padded_SR.mean(axis=1).sum() / most), 5),
        "padding": round(float(1 - real / padded_SR.sum()), 5),
    }


def in_signature_space(deal: Deal, vector_MD: np.ndarray, weight: np.ndarray) -> dict[str, float]:
    """What a plan means in signature space.

    Args:
        deal: the plan.
        vector_MD: (M, D) unit signatures, float32.
        weight: (M) loss weights.

    Returns:
        ``rank_cosine``: mean cosine between the mean signatures of two ranks in a step, once the
        direction that all examples share is taken away: 0 where ranks repeat each other no more than
        chance has it, -1 / (ranks - 1) where they could not differ more;
        ``batch_variance``: mean squared distance of a full step's weighted mean signature to the whole
        selection's.
    """
    steps, _, ranks = deal.rows.shape
    batch = deal.batch or len(deal.example) / steps
    mean_D = (weight[:, None] * vector_MD).mean(axis=0)
    shared_D = vector_MD.mean(axis=0)
    step, rank = deal.step_rank()
    edges = np.searchsorted(step, np.arange(steps + 1)).tolist()
    cosines, distances = [], []
    for low, high, full in zip(edges[:-1], edges[1:], deal.full().tolist(), strict=True):
        members = deal.example[low:high]
        sums_RD = np.zeros((ranks, vector_MD.shape[1]), dtype=np.float32)
        np.add.at(sums_RD, rank[low:high], vector_MD[members] - shared_D)
        length_R = np.linalg.norm(sums_RD, axis=1)
        unit_RD = sums_RD[length_R > 0] / length_R[length_R > 0, None]
        count = len(unit_RD)
        if count > 1:
            total = unit_RD.sum(axis=0)
            cosines.append((total @ total - count) / (count * (count - 1)))
        if full:
            batch_D = (weight[members, None] * vector_MD[members]).sum(axis=0) / batch
            distances.append(((batch_D - mean_D) ** 2).sum())
    return {
        "rank_cosine": round(float(np.mean(cosines)) if cosines else 0.0, 6),
        "batch_variance": float(np.mean(distances)) if distances else 0.0,
    }


def padded_tokens(deal: Deal, tokens: np.ndarray) -> np.ndarray:
    """(S, R) int64: rows times the longest of them, summed over a step's micro-batches."""
    return (deal.longest(tokens) * deal.rows).sum(axis=1)


def shared_cluster(deal: Deal, cluster: np.ndarray) -> float:
    """Chance that two different ranks, at a random step, hold at least one common cluster."""
    return _shared(_held(deal, cluster), deal, int(cluster.max()) + 1)


def _shared(held: np.ndarray, deal: Deal, clusters: int) -> float:
    steps, _, ranks = deal.rows.shape
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
    cluster = held // ranks
    several = np.diff(cluster, prepend=-1) == 0
    several[:-1] |= several[1:]  # clusters that one rank alone holds cannot be common
    _, cluster = np.unique(cluster[several], return_inverse=True)
    _, rank = np.unique(held[several] % ranks, return_inverse=True)
    present = np.zeros(
        (int(rank.max(initial=-1)) + 1, int(cluster.max(initial=-1)) + 1), np.float32
    )
    present[rank, cluster] = 1
    together = present @ present.T > 0
    return int((together.sum() - np.trace(together)) // 2)


def _held(deal: Deal, cluster: np.ndarray) -> np.ndarray:
    """Sorted distinct keys (step * clusters + cluster) * ranks + rank of all that is held."""
    step, rank = deal.step_rank()
    step *= int(cluster.max()) + 1
    step += cluster[deal.example]
    step *= deal.rows.shape[2]
    step += rank
    step.sort()  # faster than numpy's own unique
    return step[np.diff(step, prepend=-1) > 0]


def _clusters_per_batch(held: np.ndarray, deal: Deal) -> float:
    step_cluster = held // deal.rows.shape[2]
    return (1 + int((step_cluster[1:] != step_cluster[:-1]).sum())) / deal.rows.shape[0]
