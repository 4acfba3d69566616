"""The meters: does a signature follow the exact gradients, and does a cluster mean a lesson?

Shapes: N sampled examples, D numbers of a signature, B examples of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from formats.rendering import Rendered
from stages.score.batches import batches, pad
from stages.score.signers import GradientSigner, backward_pass

EXACT_RANK, EXACT_SEED = 256, 12345


def spread_out(signer: GradientSigner) -> GradientSigner:
    """Gives every layer entries of its own: nothing is sketched, D = layers x k x k."""
    entries = signer.rank**2
    for number, layer in enumerate(signer.layers):
        layer.fold.bucket.copy_(torch.arange(entries) + number * entries)
        layer.fold.sign.fill_(1)
    signer.dims = entries * len(signer.layers)
    return signer


def exact_signer(model: Any) -> GradientSigner:
    """A projection of every linear layer to rank 256, unsketched, with random numbers of its own.

    Layers no wider than that are only rotated, so for them it is the exact gradient.
    """
    return spread_out(GradientSigner(model, rank=EXACT_RANK, dims=1, seed=EXACT_SEED))


def sign_together(
    signers: Sequence[GradientSigner], rows: Sequence[Rendered], budget: int
) -> list[np.ndarray]:
    """Signatures of several signers hooked on one model, from one backward pass per batch.

    Returns:
        For each signer (N, D) float16 unit rows.
    """
    parts: list[dict[int, np.ndarray]] = [{} for _ in signers]
    first = signers[0]
    device = str(first.head.linear.weight.device)
    for members in batches([len(row.input_ids) for row in rows], budget):
        batch = pad([rows[i] for i in members], device)
        for signer in signers:
            signer.start(batch)
        backward_pass(first.model, first.head, batch)
        for part, signer in zip(parts, signers, strict=True):
            part.update(zip(members, unit(signer.total_BD), strict=True))
    return [np.stack([part[i] for i in range(len(rows))]) for part in parts]


def unit(raw_BD: torch.Tensor) -> np.ndarray:
    """Rows of length one, float16, on the host."""
    return (raw_BD / raw_BD.norm(dim=1, keepdim=True)).cpu().numpy().astype(np.float16)


def cosines(signature_ND: np.ndarray) -> np.ndarray:
    """(N, N) float32 cosines of unit rows, without a float32 copy of a wide matrix."""
    total = np.zeros((len(signature_ND), len(signature_ND)), np.float32)
    for start in range(0, signature_ND.shape[1], 65_536):
        part = signature_ND[:, start : start + 65_536].astype(np.float32)
        total += part @ part.T
    return total


def agreement(got: np.ndarray, exact: np.ndarray, source: np.ndarray) -> dict[str, float]:
    """How well cosines follow the exact ones.

    Args:
        got, exact: (N, N) cosines.
        source: (N,) where each example is from.

    Returns:
        ``correlation``: Spearman's, over all pairs; ``within_source``: over pairs of one source;
        ``neighbours``: recall of the ten nearest neighbours.
    """
    from scipy.stats import spearmanr

    upper = np.triu_indices(len(exact), 1)
    same = source[upper[0]] == source[upper[1]]
    outside = np.where(np.eye(len(exact), dtype=bool), -np.inf, 0)
    near = [np.argsort(-(matrix + outside), axis=1)[:, :10] for matrix in (got, exact)]
    found = [len(set(a) & set(b)) / near[0].shape[1] for a, b in zip(*near, strict=True)]
    return {
        "correlation": float(spearmanr(got[upper], exact[upper])[0]),
        "within_source": float(spearmanr(got[upper][same], exact[upper][same])[0]),
        "neighbours": float(np.mean(found)),
    }
