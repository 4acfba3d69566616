"""From rendered rows to padded batches and back: order, padding, and what to do when memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from formats.errors import ModelError
from formats.rendering import Rendered
from stages.batching import batches
from stages.score.head import Batch


@dataclass
class Signer:
    """A kind of signature, with where and in what portions to compute it.

    Attributes:
        sign: a batch to (B, D) raw signatures and (B,) losses.
        device: of the model.
        budget: padded tokens in a batch; lowered for good when memory runs out.
        exact: whether it computes in float32.
    """

    sign: Callable[[Batch], tuple[torch.Tensor, torch.Tensor]]
    device: str
    budget: int
    exact: bool = True


def pad(rows: Sequence[Rendered], device: str) -> Batch:
    """Rows padded on the right to the longest; padding is masked, never told apart by token id."""
    longest = max(len(row.input_ids) for row in rows)
    input_ids = torch.zeros(len(rows), longest, dtype=torch.int64)
    mask = torch.zeros_like(input_ids)
    supervised = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, row in enumerate(rows):
        length = len(row.input_ids)
        input_ids[i, :length] = torch.from_numpy(row.input_ids.astype(np.int64))
        mask[i, :length] = 1
        supervised[i, :length] = torch.from_numpy(row.supervised)
    return Batch(input_ids.to(device), mask.to(device), supervised.to(device))


def sign_rows(rows: Sequence[Rendered], signer: Signer) -> tuple[np.ndarray, np.ndarray]:
    """Signs rows in batches: (N, D) float32 not normalised, and (N,) float32 losses, in row order.

    A batch that does not fit in memory is halved and tried again, and later batches start smaller.

    Raises:
        ModelError: not even a single row fits.
    """
    parts: dict[int, tuple[np.ndarray, float]] = {}
    pending = list(batches([len(row.input_ids) for row in rows], signer.budget))[::-1]
    while pending:
        members = pending.pop()
        try:
            raw_BD, loss_B = signer.sign(pad([rows[i] for i in members], signer.device))
        except (torch.OutOfMemoryError, MemoryError) as error:
            if len(members) == 1:
                length = len(rows[members[0]].input_ids)
                raise ModelError(
                    f"one example of {length} tokens does not fit in memory",
                    fix="lower --max-length, or use a smaller model as --proxy",
                ) from error
            half = len(members) // 2
            signer.budget = min(signer.budget, half * len(rows[members[0]].input_ids))
            pending += [members[half:], members[:half]]
            continue
        for i, raw, loss in zip(members, raw_BD.cpu().numpy(), loss_B.tolist(), strict=True):
            parts[i] = (raw, loss)
    return (
        np.stack([parts[i][0] for i in range(len(rows))]),
        np.array([parts[i][1] for i in range(len(rows))], np.float32),
    )
