"""The output head: losses, and the gradient they send into the model, without a graph over the vocabulary.

Shape legend: B examples, T tokens, S supervised positions of the batch, E hidden size, V vocabulary.

With logits z = W h and per-example loss l = mean over its response tokens of -log softmax(z)[target],
dl/dh = W^T (softmax(z) - onehot(target)) / count. Only positions that predict a response token matter,
so logits are computed for those alone, a slice at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

# float32 logits held at once, in bytes: bounds memory whatever the batch and the vocabulary.
_LOGIT_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class Batch:
    """Examples padded on the right to one length.

    Attributes:
        input_ids: (B, T) int64.
        attention_mask: (B, T) int64, 0 at padding.
        supervised: (B, T) bool, True where the token is a response token.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    supervised: torch.Tensor


@dataclass(frozen=True)
class Positions:
    """Where the batch is supervised: position t-1 predicts the supervised token t."""

    row_S: torch.Tensor  # (S,) int64, which example
    token_S: torch.Tensor  # (S,) int64, the predicting position t-1
    target_S: torch.Tensor  # (S,) int64, the token to predict
    share_S: torch.Tensor  # (S,) float32, 1 / response tokens of that example

    @classmethod
    def of(cls, batch: Batch) -> Positions:
        """The supervised positions of a batch; the first token of a row has no predictor."""
        row_S, token_S = batch.supervised[:, 1:].nonzero(as_tuple=True)
        counts_B = batch.supervised[:, 1:].sum(1).clamp(min=1)
        return cls(
            row_S, token_S, batch.input_ids[row_S, token_S + 1], (1.0 / counts_B)[row_S].float()
        )


class Head:
    """The language-model head of a causal model, as a function of the last hidden states.

    Args:
        model: an ``AutoModelForCausalLM``.
    """

    def __init__(self, model: Any) -> None:
        self.linear = model.get_output_embeddings()
        text = model.config.get_text_config()
        # Three families change logits after the head: Gemma 2/3, Cohere and Granite.
        self.softcap = getattr(text, "final_logit_softcapping", None)
        self.scale = float(getattr(text, "logit_scale", None) or 1.0)
        self.scale /= float(getattr(text, "logits_scaling", None) or 1.0)

    def logits(self, hidden_SE: torch.Tensor) -> torch.Tensor:
        """(S, E) hidden states to (S, V) float32 logits."""
        logits_SV = self.linear(hidden_SE).float()
        if self.scale != 1.0:
            logits_SV = logits_SV * self.scale
        if self.softcap:
            logits_SV = self.softcap * torch.tanh(logits_SV / self.softcap)
        return logits_SV

    @torch.no_grad()
    def errors(
        self, hidden_SE: torch.Tensor, at: Positions
    ) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
        """Slice by slice: (positions, their losses (s,), d loss / d raw logit (s, V) float32).

        Losses and gradients carry the share 1 / response tokens, so they add up to per-example means.
        """
        step = max(1, _LOGIT_BYTES // (4 * self.linear.weight.shape[0]))
        for start in range(0, len(at.row_S), step):
            part = slice(start, start + step)
            target_s = at.target_S[part]
            logits_sV = self.logits(hidden_SE[part])
            log_total_s = torch.logsumexp(logits_sV, dim=1)
            picked_s = logits_sV.gather(1, target_s[:, None]).squeeze(1)
            error_sV = torch.exp(logits_sV - log_total_s[:, None])
            error_sV.scatter_add_(1, target_s[:, None], -torch.ones_like(error_sV[:, :1]))
            if self.softcap:
                error_sV *= 1 - (logits_sV / self.softcap) ** 2
            error_sV *= (at.share_S[part] * self.scale)[:, None]
            yield part, (log_total_s - picked_s) * at.share_S[part], error_sV

    def gradient(
        self, hidden_SE: torch.Tensor, at: Positions, rows: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Per-example losses (rows,) float32 and d sum(losses) / d hidden (S, E), in hidden's dtype."""
        loss_B = torch.zeros(rows, device=hidden_SE.device)
        gradient_SE = torch.empty_like(hidden_SE)
        weight_VE = self.linear.weight
        for part, loss_s, error_sV in self.errors(hidden_SE, at):
            loss_B.index_add_(0, at.row_S[part], loss_s)
            gradient_SE[part] = error_sV.to(weight_VE.dtype) @ weight_VE
        return loss_B, gradient_SE


def decoder(model: Any) -> Any:
    """The model without its head: a module that returns ``last_hidden_state``."""
    return getattr(model, model.base_model_prefix)


def last_hidden(model: Any, batch: Batch) -> torch.Tensor:
    """(B, T, E) hidden states that the head reads."""
    return decoder(model)(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False
    ).last_hidden_state
