"""The weighted loss of one micro-batch.

One optimizer step minimises (1/B) sum_i w_i l_i over its B = ranks x accumulation x micro-batch places,
filled or not (DESIGN section 6). DeepSpeed averages over ranks and divides by the accumulation, so what a
micro-batch hands it is (1/micro-batch) times its own sum; a test holds this against plain PyTorch.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from stages.train.batches import Batch

# Rows of logits turned to float32 at once: 1,024 rows of a vocabulary of 128,000 are half a gigabyte.
_ROWS_AT_ONCE = 1024


def weighted_loss(
    model: Any, batch: Batch, micro_batch: float, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(1/micro_batch) sum_i w_i l_i, a float32 scalar with its graph; and ``token_losses``, without.

    Args:
        model: a causal language model, or DeepSpeed's engine around it.
        micro_batch: places in a full micro-batch, the constant denominator.
    """
    losses_S = token_losses(model, batch, device)
    share_S = torch.from_numpy(batch.share / micro_batch).to(device, torch.float32)
    return torch.dot(losses_S, share_S), losses_S.detach()


def token_losses(model: Any, batch: Batch, device: str) -> torch.Tensor:
    """Cross entropy of each supervised token, (S,) float32.

    Logits are computed at the columns that some example needs, where the model can do that.
    """
    keep_U = torch.from_numpy(batch.keep).to(device)
    example_S = torch.from_numpy(batch.example).to(device)
    column_S = torch.from_numpy(batch.column).to(device)
    target_S = torch.from_numpy(batch.target).to(device)
    some = {"logits_to_keep": keep_U} if _can_keep_some(model) else {}
    logits_BUV = model(
        input_ids=torch.from_numpy(batch.input_ids).to(device),
        attention_mask=torch.from_numpy(batch.attention_mask).to(device),
        use_cache=False,
        **some,
    ).logits
    picked_SV = logits_BUV[example_S, column_S if some else keep_U[column_S]]
    if picked_SV.dtype == torch.float32:
        return _cross_entropy(picked_SV, target_S)
    parts = zip(picked_SV.split(_ROWS_AT_ONCE), target_S.split(_ROWS_AT_ONCE), strict=True)
    return torch.cat(
        [
            checkpoint(_cross_entropy, logits, target, use_reentrant=False)
            for logits, target in parts
        ]
    )


def _cross_entropy(logits_SV: torch.Tensor, target_S: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits_SV.float(), target_S, reduction="none")


def _can_keep_some(model: Any) -> bool:
    inner = getattr(model, "module", model)
    inner = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
    return "logits_to_keep" in inspect.signature(inner.forward).parameters
