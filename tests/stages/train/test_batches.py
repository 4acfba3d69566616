"""Padding micro-batches, and the loss of one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.allocation import MicroBatch
from stages.train.batches import Batch, collate
from tests import tiny


def micro(weights: list[float]) -> MicroBatch:
    count = len(weights)
    rows = list(range(count))
    return MicroBatch(0, 0, 0, rows, [f"{row:032x}" for row in rows], weights, rows, [0] * count)


def rendered(ids: list[int], learned: list[int]) -> Any:
    mask = np.zeros(len(ids), bool)
    mask[learned] = True
    return SimpleNamespace(input_ids=np.array(ids, np.int32), supervised=mask)


def test_by_hand() -> None:
    batch = collate(
        micro([2.0, 0.5]), [rendered([5, 6, 7], [1, 2]), rendered([8, 9, 10, 11, 12], [4])]
    )
    assert batch.input_ids.tolist() == [[5, 6, 7, 0, 0], [8, 9, 10, 11, 12]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.keep.tolist() == [0, 1, 3]  # position t predicts token t + 1
    assert batch.example.tolist() == [0, 0, 1]
    assert batch.column.tolist() == [0, 1, 2]
    assert batch.target.tolist() == [6, 7, 12]
    assert batch.share.tolist() == [1.0, 1.0, 0.5]
    assert (batch.tokens, batch.padded_tokens) == (8, 10)


def test_padding_to_a_multiple() -> None:
    batch = collate(micro([1.0]), [rendered([5, 6, 7], [2])], multiple=8)
    assert batch.input_ids.shape == (1, 8)
    assert batch.padded_tokens == 8


def test_an_empty_micro_batch_weighs_nothing_but_runs() -> None:
    batch = collate(micro([]), [])
    assert batch.input_ids.shape == (1, 2)
    assert batch.share.tolist() == [0.0]
    assert (batch.tokens, batch.padded_tokens) == (0, 0)


EXAMPLES = st.lists(
    st.integers(2, 12).flatmap(
        lambda length: st.tuples(
            st.lists(st.integers(3, 258), min_size=length, max_size=length),
            st.sets(st.integers(1, length - 1), min_size=1),
            st.floats(0.01, 10),
        )
    ),
    min_size=1,
    max_size=5,
)


@given(examples=EXAMPLES)
def test_every_supervised_token_is_predicted_from_the_one_before(examples: Any) -> None:
    weights = [weight for *_, weight in examples]
    batch = collate(micro(weights), [rendered(ids, sorted(on)) for ids, on, _ in examples])
    got = sorted(
        (int(e), int(batch.keep[c]), int(t))
        for e, c, t in zip(batch.example, batch.column, batch.target, strict=True)
    )
    expected = [(e, t - 1, ids[t]) for e, (ids, on, _) in enumerate(examples) for t in sorted(on)]
    assert got == expected
    for number, weight in enumerate(weights):  # the shares of an example add up to its weight
        assert batch.share[batch.example == number].sum() == pytest.approx(weight)


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny.model()


@settings(deadline=None, max_examples=15)
@given(examples=EXAMPLES)
def test_the_loss_is_the_weighted_sum_of_example_means(model: Any, examples: Any) -> None:
    import torch

    from stages.train.loss import weighted_loss

    weights = [weight for *_, weight in examples]
    batch = collate(micro(weights), [rendered(ids, sorted(on)) for ids, on, _ in examples])
    expected = 0.0
    for ids, on, weight in examples:
        logits = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        expected -= weight * np.mean([float(logits[t - 1, ids[t]].detach()) for t in on])
    got = float(weighted_loss(model, batch, 7, "cpu")[0].detach())
    assert got == pytest.approx(expected / 7, rel=1e-4)


def gradient(model: Any, batch: Batch) -> Any:
    from stages.train.loss import weighted_loss

    model.zero_grad()
    weighted_loss(model, batch, 1, "cpu")[0].backward()
    return model.lm_head.weight.grad.float().clone()


def test_low_precision_logits_are_summed_in_float32_piece_by_piece(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from stages.train import loss

    batch = collate(micro([1.0, 2.0]), [rendered([5, 6, 7, 8], [1, 2, 3]), rendered([9, 4], [1])])
    half = tiny.model().to(torch.bfloat16)
    whole = gradient(half, batch)
    monkeypatch.setattr(loss, "_ROWS_AT_ONCE", 1)
    assert torch.equal(gradient(half, batch), whole)
    assert loss.token_losses(half, batch, "cpu").dtype == torch.float32
    relative = (whole - gradient(model, batch)).norm() / whole.norm()
    assert float(relative) < 0.05


def test_models_that_cannot_keep_some_logits_give_the_same(model: Any) -> None:
    import torch

    from stages.train.loss import token_losses

    class Plain(torch.nn.Module):
        def forward(self, input_ids: Any, attention_mask: Any, use_cache: bool) -> Any:
            return model(input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache)

    batch = collate(micro([1.0, 2.0]), [rendered([5, 6, 7, 8], [2, 3]), rendered([9, 4], [1])])
    some, everything = token_losses(model, batch, "cpu"), token_losses(Plain(), batch, "cpu")
    assert torch.allclose(some, everything, atol=1e-6)
