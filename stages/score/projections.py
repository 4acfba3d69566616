"""Random projections of gradients, fixed by the layer's name and a seed.

The weight gradient of a linear layer is ``G^T A`` (outputs x inputs). With P (inputs x k) and Q (outputs
x k) drawn for that layer, ``Q^T (G^T A) P = (G Q)^T (A P)`` keeps k x k numbers of it without ever
forming it. Matrices of different layers are independent, so adding their k x k products, folded to D
entries, projects the gradient of the whole model: inner products are kept in expectation
(Johnson and Lindenstrauss 1984), and terms that pair two different layers have mean zero.

Columns are orthonormal, then scaled to keep lengths in expectation. Orthogonality takes away the part
of the error that independent columns add, most for narrow layers (Choromanski et al. 2017).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch


def generator(seed: int, *names: str) -> np.random.Generator:
    """A random stream that depends on the names and the seed alone, on every machine."""
    text = "\0".join([str(seed), *names]).encode()
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(text, digest_size=16).digest()))


def projection(size: int, rank: int, seed: int, *names: str) -> torch.Tensor:
    """A projection of ``size`` numbers to ``rank``: (size, rank) float32, E[P P^T] = identity.

    A layer narrower than the rank is rotated, and padded with zero columns.
    """
    gaussian = generator(seed, *names).standard_normal((size, min(rank, size)), dtype=np.float32)
    orthogonal, triangle = np.linalg.qr(gaussian)
    # Signs fixed by R's diagonal make the result independent of LAPACK's conventions.
    orthogonal *= np.sign(np.diagonal(triangle))
    result = np.zeros((size, rank), dtype=np.float32)
    result[:, : min(rank, size)] = orthogonal * np.sqrt(size / min(rank, size))
    return torch.from_numpy(result)


@dataclass(frozen=True)
class Fold:
    """A count-sketch of k*k numbers to D (Charikar, Chen and Farach-Colton 2002).

    Every entry gets a random sign and a bucket; buckets are dealt evenly, by a random permutation.
    Even with D = k*k it matters: layers narrower than k fill a corner of their product only, and the
    permutation spreads them over all D entries.

    Attributes:
        bucket: (k*k,) int64.
        sign: (k*k,) float32.
    """

    bucket: torch.Tensor
    sign: torch.Tensor

    @classmethod
    def draw(cls, entries: int, dims: int, seed: int, name: str, device: str) -> Fold:
        """The sketch of one layer's ``entries`` numbers."""
        rng = generator(seed, "fold", name)
        bucket = rng.permutation(max(entries, dims))[:entries] % dims
        sign = rng.integers(0, 2, entries).astype(np.float32) * 2 - 1
        return cls(torch.from_numpy(bucket).to(device), torch.from_numpy(sign).to(device))

    def add(self, total_BD: torch.Tensor, product_BE: torch.Tensor) -> None:
        """Adds the sketch of (B, k*k) numbers to the (B, D) total, in place."""
        total_BD.index_add_(1, self.bucket, product_BE * self.sign)
