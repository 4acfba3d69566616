"""``--max-tokens-per-micro-batch``: what is written, what is said, and that the loss stays exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.allocation import Allocation
from formats.errors import SettingError
from stages.allocate import allocate, expected
from stages.allocate.budget import streamed
from stages.allocate.levels import Levels
from stages.allocate.shape import Shape
from stages.allocate.strategies import STRATEGIES
from tests import tiny
from tests.stages.allocate.test_allocate_stage import make
from tests.stages.allocate.test_invariants import deals
from tests.stages.allocate.test_plan import make_selection
from tests.synthetic import Notes


def test_manifest_and_lines(tmp_path: Path) -> None:
    path = make(tmp_path, [40, 30, 20], 53)
    how: dict[str, Any] = {"ranks": 2, "accumulation": 2, "max_tokens_per_micro_batch": 400}
    header = allocate(path, tmp_path / "a", epochs=2, **how)
    allocation = Allocation.open(tmp_path / "a")
    batches = [batch for rank in range(2) for batch in allocation.rank(rank)]
    rows = [len(batch.rows) for batch in batches]
    assert max(rows) == allocation.most_rows > min(rows)
    assert max(max(batch.tokens, default=0) * len(batch.rows) for batch in batches) <= 400
    assert allocation.batch == 53 / allocation.steps_per_epoch
    assert allocation.micro_batch == round(53 / allocation.steps_per_epoch / 4)
    assert header.params["max_tokens_per_micro_batch"] == 400
    assert header.stats["longer_than_budget"] == 0
    assert header.stats["most_rows"] == allocation.most_rows
    assert header.stats["plan"]["padding"] < 0.15 < header.stats["random"]["padding"]


def test_only_plans_with_a_budget_have_another_key() -> None:
    params, key = expected(["s", "c"], ranks=2)
    assert "max_tokens_per_micro_batch" not in params
    assert expected(["s", "c"], ranks=2, max_tokens_per_micro_batch=None)[1] == key
    assert expected(["s", "c"], ranks=2, max_tokens_per_micro_batch=9)[1] != key


def test_a_longer_row_is_said(tmp_path: Path) -> None:
    path, notes = make(tmp_path, [40, 30, 20], 53), Notes()
    tokens = [json.loads(line)["tokens"] for line in path.read_text().splitlines()[1:]]
    longer = sum(length > 150 for length in tokens)
    allocate(path, tmp_path / "a", ranks=2, max_tokens_per_micro_batch=150, reporter=notes)
    assert notes.warnings == [
        f"{longer} of 53 examples are longer than 150 tokens, up to {max(tokens)}; "
        "each has a micro-batch of its own"
    ]
    steps = Allocation.open(tmp_path / "a").steps
    assert notes.messages[0] == (
        f"53 examples over 2 ranks: {steps} steps of about {round(53 / steps)} an epoch"
    )


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"max_tokens_per_micro_batch": 0},
            "--max-tokens-per-micro-batch is 0; give a positive number",
        ),
        (
            {"max_tokens_per_micro_batch": 500, "micro_batch": 4},
            "--micro-batch 4 says how many rows a micro-batch has, --max-tokens-per-micro-batch 500 "
            "how many tokens; leave one of them out",
        ),
    ],
)
def test_bad_settings(how: dict[str, int], message: str) -> None:
    with pytest.raises(SettingError) as error:
        expected(["s", "c"], ranks=2, **how)
    assert str(error.value) == message


def test_levels_worked_out_by_hand() -> None:
    # Budget 100: at 60 tokens one row, at 50 two, at 20 four of the five that are left.
    longest = np.array([60, 50, 50, 20, 20, 20, 20, 10])
    random = np.random.default_rng(0)
    levels = Levels.of_budget(longest, Shape(16, 2, 1, 1), 100, random)
    assert levels.rows.tolist() == [1, 2, 5]
    # Two micro-batches a step: a fourth is needed anyway, so the last ones share their rows.
    levels = Levels.of_budget(longest, Shape(16, 2, 1, 2), 100, random)
    assert levels.rows.tolist() == [1, 2, 3, 2]
    assert (levels.count, levels.steps) == (4, 2)


def test_the_usual_filling_worked_out_by_hand() -> None:
    random = np.random.default_rng(0)
    tokens = np.full(7, 10)
    unit, rank, steps = streamed(tokens, Shape(7, 2, 1, 1), 30, random)
    # Three rows fit; 7 rows make 3, 3, 1; the fourth place of two steps is made by halving a full one.
    assert steps == 2
    assert sorted(np.bincount(unit * 2 + rank).tolist()) == [1, 1, 2, 3]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_are_many_where_they_are_short(strategy: str) -> None:
    """Padding is small, and micro-batches are nearly full, in all plans but the usual one."""
    random = np.random.default_rng(0)
    tokens = np.clip(random.lognormal(np.log(220), 0.7, 1200), 8, 1024)
    selection = make_selection(np.arange(1200) % 40, tokens)
    for deal in deals(selection, Shape(1200, 4, 1, 2), strategy, budget=4096):
        padded = deal.longest(selection.tokens) * deal.rows
        filled = padded.sum() / deal.rows.size / 4096
        padding = 1 - selection.tokens.sum() / padded.sum()
        if strategy == "random":
            assert padding > 0.3
        else:
            assert filled > 0.85
            assert padding < (0.14 if strategy == "balanced" else 0.09)


def test_the_loss_stays_exact(tmp_path: Path) -> None:
    """What train makes of the plan is (1/B) sum_i w_i l_i with the plan's B, step by step."""
    import torch

    from formats.data import open_dataset
    from formats.rendering import Renderer
    from stages.train.batches import collate
    from stages.train.loss import weighted_loss

    selection = make(tmp_path, [12, 8, 4], 17)
    allocate(
        selection,
        tmp_path / "a",
        ranks=2,
        accumulation=2,
        max_tokens_per_micro_batch=300,
    )
    plan = Allocation.open(tmp_path / "a")
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(24))
    model, render = tiny.model(), Renderer(tiny.tokenizer(), max_length=64)
    got: dict[int, torch.Tensor] = {}
    wanted: dict[int, torch.Tensor] = {}
    with open_dataset([str(data)]) as dataset:
        for rank in range(2):
            for batch in plan.rank(rank):
                rows = [render(dataset[row]) for row in batch.rows]
                # DeepSpeed takes the mean over ranks and accumulation.
                loss, _ = weighted_loss(model, collate(batch, rows), plan.batch / 4, "cpu")
                got[batch.step] = got.get(batch.step, 0) + loss / 4
                for row, weight in zip(rows, batch.weights, strict=True):
                    one = collate(batch.__class__(0, 0, 0, [0], ["0"], [1.0], [0], [0]), [row])
                    alone, _ = weighted_loss(model, one, 1, "cpu")
                    wanted[batch.step] = wanted.get(batch.step, 0) + weight * alone / plan.batch
    assert len(got) == plan.steps > 1
    for step, loss in got.items():
        assert loss.item() == pytest.approx(wanted[step].item(), rel=1e-5)
    weights = list(model.parameters())
    ours = torch.autograd.grad(got[0], weights, allow_unused=True)
    reference = torch.autograd.grad(wanted[0], weights, allow_unused=True)
    for one, other in zip(ours, reference, strict=True):
        assert float((one - other).abs().max()) < 1e-6
