"""From the plan's micro-batches to padded tensors.

Shapes: B examples of a micro-batch, T tokens of its longest, S supervised tokens in all, U positions
(columns) at which some example has one to predict.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from formats.allocation import Allocation, MicroBatch

Item = TypeVar("Item")


@dataclass(frozen=True)
class Batch:
    """One micro-batch, ready for the model.

    Attributes:
        plan: where it comes from.
        input_ids: (B, T) int64, padded on the right; a single dummy example when the plan's is empty.
        attention_mask: (B, T) int64.
        keep: (U,) int64, ascending columns whose logits are needed.
        example: (S,) int64, which example each supervised token belongs to.
        column: (S,) int64, where in ``keep`` the position that predicts it stands.
        target: (S,) int64, the tokens to predict.
        share: (S,) float64, the token's part in the sum of weighted losses: w_i / n_i, or w_i over the
            mean n when every token counts alike.
        tokens, padded_tokens: counts without and with padding; 0 for a dummy.
    """

    plan: MicroBatch
    input_ids: np.ndarray
    attention_mask: np.ndarray
    keep: np.ndarray
    example: np.ndarray
    column: np.ndarray
    target: np.ndarray
    share: np.ndarray
    tokens: int
    padded_tokens: int


def steps(
    allocation: Allocation,
    rank: int,
    render: Callable[[int], Any],
    *,
    first: int = 0,
    multiple: int = 1,
    per_token: float | None = None,
) -> Iterator[list[Batch]]:
    """The rank's micro-batches, one list per optimizer step, rendered one step ahead in a thread.

    Args:
        render: gives a row's ``Rendered`` example.
        first: step to begin with.
        multiple: pad lengths up to a multiple of this.
        per_token: see ``collate``.
    """
    by_step = itertools.groupby(allocation.rank(rank, first), key=lambda plan: plan.step)
    return _ahead(
        [collate(plan, [render(row) for row in plan.rows], multiple, per_token) for plan in plans]
        for _, plans in by_step
    )


def collate(
    plan: MicroBatch, rendered: list[Any], multiple: int = 1, per_token: float | None = None
) -> Batch:
    """Pads rendered examples into one batch.

    Args:
        multiple: pad lengths up to a multiple of this.
        per_token: the same divisor for every token, the mean number of response tokens of an example;
            None divides by each example's own number, so that examples count alike.

    An empty micro-batch becomes one example of two tokens whose share is 0: the rank still runs forward
    and backward, because the other ranks wait for it in every collective.
    """
    ids = [np.asarray(one.input_ids, np.int64) for one in rendered] or [np.zeros(2, np.int64)]
    masks = [np.asarray(one.supervised, bool) for one in rendered] or [np.array([False, True])]
    weights = plan.weights or [0.0]
    longest = max(len(one) for one in ids)
    longest = -(-longest // multiple) * multiple
    input_ids = np.stack([np.pad(one, (0, longest - len(one))) for one in ids])
    attention = np.stack([np.arange(longest) < len(one) for one in ids])
    # The token at position t is predicted at t - 1, so the first one can never be.
    supervised = np.stack([np.pad(one, (0, longest - len(one))) for one in masks])[:, 1:]
    example, position = np.nonzero(supervised)
    keep, column = np.unique(position, return_inverse=True)
    counts = np.full(len(ids), per_token) if per_token else np.maximum(supervised.sum(axis=1), 1)
    return Batch(
        plan=plan,
        input_ids=input_ids,
        attention_mask=attention.astype(np.int64),
        keep=keep,
        example=example,
        column=column.reshape(-1),
        target=input_ids[example, position + 1],
        share=(np.asarray(weights, np.float64) / counts)[example],
        tokens=sum(len(one.input_ids) for one in rendered),
        padded_tokens=longest * len(rendered),
    )


def _ahead(items: Iterable[Item], depth: int = 2) -> Iterator[Item]:
    """The items in order, each prepared in a thread while an earlier one is worked on."""
    end: Any = object()
    iterator = iter(items)
    with ThreadPoolExecutor(1) as pool:
        pending = deque(pool.submit(next, iterator, end) for _ in range(depth))
        while (item := pending.popleft().result()) is not end:
            pending.append(pool.submit(next, iterator, end))
            yield item
