"""Signatures that do not look at gradients: controls that a gradient signature has to beat.

Shape legend: B examples, T tokens, E hidden size, C checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stages.score.head import Batch, Head, Positions, last_hidden


class EmbeddingSigner:
    """The mean last hidden state over all tokens of an example: its topic (the control).

    Args:
        model: an ``AutoModelForCausalLM`` on its device.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.requires_grad_(False)
        self.head = Head(model)

    @torch.no_grad()
    def __call__(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, E) float32 mean hidden states and (B,) losses."""
        hidden_BTE = last_hidden(self.model, batch)
        weight_BT = batch.attention_mask / batch.attention_mask.sum(1, keepdim=True)
        mean_BE = torch.einsum("bte,bt->be", hidden_BTE.float(), weight_BT.float())
        return mean_BE, losses(self.head, hidden_BTE, batch)


class TrajectorySigner:
    """Losses at several checkpoints, as S2L clusters them (Yang et al. 2024, arXiv:2403.07384).

    The rows are stored as unit vectors, like all signatures; their length is kept as the norm.

    Args:
        models: the checkpoints in training order, all on one device.
    """

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = [model.requires_grad_(False) for model in models]
        self.heads = [Head(model) for model in models]

    @torch.no_grad()
    def __call__(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, C) float32 losses, and those of the last checkpoint."""
        columns = [
            losses(head, last_hidden(model, batch), batch)
            for model, head in zip(self.models, self.heads, strict=True)
        ]
        return torch.stack(columns, dim=1), columns[-1]


def losses(head: Head, hidden_BTE: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Mean loss of each example's response tokens, (B,) float32."""
    at = Positions.of(batch)
    loss_B = torch.zeros(len(batch.input_ids), device=hidden_BTE.device)
    for part, loss_s, _ in head.errors(hidden_BTE[at.row_S, at.token_S], at):
        loss_B.index_add_(0, at.row_S[part], loss_s)
    return loss_B
