"""The model's two answers to an item: how likely a sequence is, and what it says itself.

Shape legend: B items, T tokens, U columns at which some item has a token to predict, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from formats.errors import ModelError, NotFiniteError
from stages.evaluate.items import Item

# Logits turned to float32 and normalised at once, in numbers: half a gigabyte.
_NUMBERS_AT_ONCE = 1 << 27


class Computer:
    """A model on its device.

    Args:
        model: a causal language model in evaluation mode.
        tokenizer: its tokenizer.
        stops: tokens that end an answer.
        new_tokens: of an answer at most.
    """

    def __init__(
        self, model: Any, tokenizer: Any, device: str, stops: Sequence[int], new_tokens: int
    ) -> None:
        from transformers import GenerationConfig

        self._model = model.to(device)
        self._tokenizer = tokenizer
        self._device = device
        self._stops = list(stops)
        self._some = "logits_to_keep" in inspect.signature(model.forward).parameters
        # The model's own configuration may hold sampling or a repetition penalty: not greedy.
        self._model.generation_config = GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=new_tokens,
            eos_token_id=self._stops or None,
            pad_token_id=self._stops[0] if self._stops else 0,
        )

    def losses(self, items: list[Item]) -> list[list[float]]:
        """Per item the loss summed over its counted tokens, in nats, and how many these are.

        Raises:
            ModelError: not even one item fits into memory.
            NotFiniteError: a loss is NaN or infinite.
        """
        results = self._halving(items, self._losses)
        for item, (loss, _) in zip(items, results, strict=True):
            if not np.isfinite(loss):
                raise NotFiniteError(
                    f"the loss of row {item.row} is {loss}",
                    fix="evaluate with --dtype float32, or look at the model",
                    row=item.row,
                )
        return results

    def answers(self, items: list[Item]) -> list[str]:
        """Per item the greedy answer, without the token that ends it.

        Raises:
            ModelError: not even one item fits into memory.
        """
        return self._halving(items, self._answers)

    def _halving(self, items: list[Item], compute: Callable[[list[Item]], list[Any]]) -> list[Any]:
        try:
            with torch.inference_mode():
                return compute(items)
        except (torch.OutOfMemoryError, MemoryError) as error:
            if len(items) == 1:
                raise ModelError(
                    f"one example of {len(items[0].input_ids)} tokens does not fit in memory",
                    fix="lower --max-length",
                ) from error
        half = len(items) // 2
        return self._halving(items[:half], compute) + self._halving(items[half:], compute)

    def _losses(self, items: list[Item]) -> list[list[float]]:
        longest = max(len(item.input_ids) for item in items)
        ids_BT = np.zeros((len(items), longest), np.int64)
        mask_BT, counted_BT = np.zeros_like(ids_BT), np.zeros((len(items), longest), bool)
        for i, item in enumerate(items):
            length = len(item.input_ids)
            ids_BT[i, :length], mask_BT[i, :length] = item.input_ids, 1
            counted_BT[i, :length] = item.counted
        row_S, before_S = np.nonzero(counted_BT[:, 1:])  # position t - 1 predicts token t
        keep_U, column_S = np.unique(before_S, return_inverse=True)
        logits_BUV = self._forward(ids_BT, mask_BT, keep_U)
        losses_S = self._cross_entropy(logits_BUV, row_S, column_S, ids_BT[row_S, before_S + 1])
        sums = np.bincount(row_S, weights=losses_S, minlength=len(items))
        counts = np.bincount(row_S, minlength=len(items))
        return [[float(loss), int(count)] for loss, count in zip(sums, counts, strict=True)]

    def _forward(self, ids_BT: np.ndarray, mask_BT: np.ndarray, keep_U: np.ndarray) -> torch.Tensor:
        keep = torch.from_numpy(keep_U).to(self._device)
        logits = self._model(
            input_ids=torch.from_numpy(ids_BT).to(self._device),
            attention_mask=torch.from_numpy(mask_BT).to(self._device),
            use_cache=False,
            **({"logits_to_keep": keep} if self._some else {}),
        ).logits
        return logits if self._some else logits[:, keep]

    def _cross_entropy(
        self,
        logits_BUV: torch.Tensor,
        row_S: np.ndarray,
        column_S: np.ndarray,
        target_S: np.ndarray,
    ) -> np.ndarray:
        """(S,) float64 losses; only a slice of the logits at a time becomes float32."""
        step = max(1, _NUMBERS_AT_ONCE // logits_BUV.shape[-1])
        found = []
        for start in range(0, len(row_S), step):
            part = slice(start, start + step)
            picked_sV = logits_BUV[row_S[part], column_S.reshape(-1)[part]].float()
            target_s = torch.from_numpy(target_S[part]).to(self._device)
            found.append(functional.cross_entropy(picked_sV, target_s, reduction="none").cpu())
        return torch.cat(found).double().numpy() if found else np.zeros(0)

    def _answers(self, items: list[Item]) -> list[str]:
        """Prompts are padded on the left, so that all end where the answer begins."""
        longest = max(len(item.input_ids) for item in items)
        ids_BT = np.zeros((len(items), longest), np.int64)
        mask_BT = np.zeros_like(ids_BT)
        for i, item in enumerate(items):
            start = longest - len(item.input_ids)
            ids_BT[i, start:], mask_BT[i, start:] = item.input_ids, 1
        made_BT = self._model.generate(
            input_ids=torch.from_numpy(ids_BT).to(self._device),
            attention_mask=torch.from_numpy(mask_BT).to(self._device),
        )
        return [self._text(made) for made in made_BT[:, longest:].tolist()]

    def _text(self, tokens: list[int]) -> str:
        end = next((i for i, token in enumerate(tokens) if token in self._stops), len(tokens))
        return str(self._tokenizer.decode(tokens[:end], skip_special_tokens=True)).strip()


def check_room(model: Any, items: Sequence[Item], new_tokens: int) -> None:
    """Prompts and answers fit into the positions the model knows.

    Raises:
        ModelError: the longest does not.
    """
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    longest = max((len(item.input_ids) for item in items), default=0)
    if most and longest + new_tokens > most:
        raise ModelError(
            f"the longest prompt has {longest:,} tokens; with {new_tokens:,} new ones that is more "
            f"than the {most:,} positions of the model",
            fix="lower --max-new-tokens or --max-length",
        )
