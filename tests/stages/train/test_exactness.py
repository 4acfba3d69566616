"""The loss of DESIGN section 6, with real DeepSpeed processes, against plain PyTorch.

All cases of one number of ranks run in one launch. Plain gradient descent shows the gradient itself:
the weights move by the rate times it. AdamW, the default, is compared by its losses and, less tightly,
by its weights, because it blows up rounding where a gradient is nearly zero.
"""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from formats import artifacts
from formats.allocation import Allocation
from formats.runs import read_metrics
from stages.launch import launch
from stages.train.schedule import learning_rate
from stages.train.settings import Settings
from tests import tiny
from tests.stages.train import plans, reference

DESCENT = {
    "train_batch_size": "auto",
    "gradient_clipping": 0,
    "zero_allow_untested_optimizer": True,
    "optimizer": {"type": "SGD", "params": {"lr": "auto"}},
}
IN_BFLOAT16 = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
MONITOR = {"enabled": True, "job_name": "sums"}
LORA = [(0, 3), (1, 3), (2, 1), (2, 3), (3, 3)]  # ZeRO stage, accumulation
WEIGHTS = {0: 3.0, 1: 0.25, 2: 0.5, 4: 2.0, 7: 0.125, 9: 1.5}

# Three steps for 1, 2 or 4 ranks: the same rows in the same steps, the last one partly filled.
ROWS = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
    [12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
    [5, 9, 1],
]


def deal(ranks: int, accumulation: int) -> list[list[list[list[int]]]]:
    """``ROWS`` dealt out: 12 places a step, filled in order; some micro-batches stay empty."""
    size = 12 // (ranks * accumulation)
    return [
        [
            [step[(r * accumulation + m) * size :][:size] for m in range(accumulation)]
            for r in range(ranks)
        ]
        for step in ROWS
    ]


def deal_unequally(ranks: int) -> list[list[list[list[int]]]]:
    """``ROWS`` in two micro-batches a rank, of any size, as a budget of tokens gives them."""
    cuts = [[4, 5, 7, 7, 9, 10, 11], [3, 5, 7], [7]][{4: 0, 2: 1, 1: 2}[ranks]]
    pieces = [
        [[*step[first:last]] for first, last in zip([0, *cuts], [*cuts, 12], strict=True)]
        for step in ROWS
    ]
    return [[step[2 * rank :][:2] for rank in range(ranks)] for step in pieces]


_SHAPE = ("weights", "micro_batch", "batch")


class Cases:
    """Runs to train, and where their results are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = tiny.save(folder / "model")
        self.data = plans.write_data(folder / "data.jsonl")
        self.cases: list[dict[str, Any]] = []

    def add(self, name: str, steps: list[list[list[list[int]]]], **changes: Any) -> None:
        """One more run."""
        shape = {key: changes.pop(key) for key in _SHAPE if key in changes}
        path = plans.write_allocation(self.folder / f"plan-{name}", self.data, steps, **shape)
        settings = Settings(
            **{
                "allocation": str(path),
                "model": str(self.model),
                "output": str(self.folder / name),
                "learning_rate": 0.5,
                "warmup": 0.0,
                "weight_decay": None,
                "schedule": "constant",
                "clip": None,
                "zero_stage": 2,
                "deepspeed": DESCENT,
                "deepspeed_path": "ds.json",
                "dtype": "auto",
                "gradient_checkpointing": False,
                "seed": 0,
                "max_length": None,
                "data": (),
                "quiet": True,
                **changes,
            }
        )
        self.cases.append(asdict(settings))

    def run(self, ranks: int) -> None:
        """Trains them all in one launch."""
        (self.folder / "cases.json").write_text(json.dumps(self.cases))
        launch("tests.stages.train.cases_worker", self.folder, ranks=ranks)

    def losses(self, name: str) -> list[float]:
        return [line["loss"] for line in read_metrics(self.folder / name)]

    def weights(self, name: str, file: str = "model/model.safetensors") -> dict[str, Any]:
        from safetensors.torch import load_file

        return load_file(self.folder / name / file)


def prepare(folder: Path, ranks: int) -> Cases:
    """The matrix for one number of ranks."""
    cases = Cases(folder)
    for stage in (0, 1, 2, 3):
        for accumulation in (1, 3):
            steps = deal(ranks, accumulation)
            cases.add(f"descent-{stage}-{accumulation}", steps, weights=WEIGHTS, zero_stage=stage)
    adam = {"deepspeed": None, "learning_rate": 1e-3, "schedule": "cosine", "warmup": 0.4}
    for stage in (0, 2):
        cases.add(f"adam-{stage}", deal(ranks, 1), weights=WEIGHTS, zero_stage=stage, **adam)
        cases.add(f"ones-{stage}", deal(ranks, 1), zero_stage=stage, **adam)
    cases.add("checkpointing", deal(ranks, 1), weights=WEIGHTS, gradient_checkpointing=True)
    for stage, accumulation in LORA:
        steps = deal(ranks, accumulation)
        name = f"lora-{stage}-{accumulation}"
        cases.add(name, steps, weights=WEIGHTS, zero_stage=stage, lora=4)
    for what, stage in (("optimizer", 2), ("parameters", None)):
        cases.add(
            f"adam-{what}", deal(ranks, 3), weights=WEIGHTS, zero_stage=stage, offload=what, **adam
        )
    cases.add("bfloat16", deal(ranks, 3), weights=WEIGHTS, deepspeed={**DESCENT, **IN_BFLOAT16})
    watched = {**DESCENT, "csv_monitor": {**MONITOR, "output_path": str(folder / "watched")}}
    cases.add("monitored", deal(ranks, 3), weights=WEIGHTS, deepspeed=watched)
    cases.add("token", deal(ranks, 3), weights=WEIGHTS, loss_per="token")
    cases.add("budget", deal_unequally(ranks), weights=WEIGHTS, micro_batch=2, batch=8.5)
    cases.add("again", deal(ranks, 3), weights=WEIGHTS)
    # Rows 0 and 1 as often as this, or with that weight, in the same number of places.
    spare: list[list[list[int]]] = [[[2]] * 4] * (ranks - 1)
    cases.add("thrice-weight-1", [[[[0], [1], [], []], *spare]], weights={0: 3.0})
    cases.add("thrice-copies-1", [[[[0], [0], [0], [1]], *spare]])
    wide: list[list[list[int]]] = [[[2]]] * (ranks - 1)
    cases.add("thrice-weight-4", [[[[0, 1]], *wide]], weights={0: 3.0}, micro_batch=4)
    cases.add("thrice-copies-4", [[[[0, 0, 0, 1]], *wide]])
    cases.run(ranks)
    return cases


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def of(ranks: int) -> Cases:
        return prepare(tmp_path_factory.mktemp(f"ranks{ranks}"), ranks)

    return of


RANKS = pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.slow)])


REFERENCES: dict[str, tuple[list[float], dict[str, Any]]] = {}


def plain(cases: Cases, name: str) -> tuple[list[float], dict[str, Any]]:
    """The reference of a case; one for all that take the same rows with the same weights per step."""
    kind = name.split("-")[0]
    plan = cases.folder / f"plan-{name}"
    lines = [sorted(step) for step in reference.read_steps(Allocation.open(plan))]
    key = json.dumps([kind, lines])
    if key not in REFERENCES:
        how = {
            "adam": _adam,
            "ones": _adam,
            "lora": partial(_descent, lora=4),
            "token": partial(_descent, per_token=True),
        }
        REFERENCES[key] = how.get(kind, _descent)(plan, cases.model)
    return REFERENCES[key]


def _descent(plan: Path, model: Path, **how: Any) -> tuple[list[float], dict[str, Any]]:
    from torch.optim import SGD

    return reference.train(plan, model, partial(SGD, lr=0.5), clip=0, **how)


def _adam(plan: Path, model: Path) -> tuple[list[float], dict[str, Any]]:
    from torch.optim import AdamW

    rate = partial(learning_rate, steps=3, peak=1e-3, warmup=0.4, schedule="cosine")
    adam = partial(AdamW, lr=1e-3, weight_decay=0.0)
    return reference.train(plan, model, adam, clip=1.0, rate=rate)


def assert_same(got: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
    assert got.keys() == expected.keys()
    for name, weight in got.items():
        assert float((weight - expected[name]).abs().max()) <= tolerance, name


@RANKS
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_gradients_are_those_of_plain_pytorch(
    matrix: Any, ranks: int, accumulation: int, stage: int
) -> None:
    cases = matrix(ranks)
    name = f"descent-{stage}-{accumulation}"
    losses, weights = plain(cases, name)
    assert cases.losses(name) == pytest.approx(losses, rel=1e-5)
    assert_same(cases.weights(name), weights, 2e-6)


@RANKS
@pytest.mark.parametrize("stage", [0, 2])
@pytest.mark.parametrize("kind", ["adam", "ones"])
def test_default_training_is_clipped_adamw(matrix: Any, ranks: int, stage: int, kind: str) -> None:
    cases = matrix(ranks)
    losses, weights = plain(cases, f"{kind}-{stage}")
    assert cases.losses(f"{kind}-{stage}") == pytest.approx(losses, rel=1e-5)
    assert_same(cases.weights(f"{kind}-{stage}"), weights, 5e-5)


@RANKS
@pytest.mark.parametrize("what", ["optimizer", "parameters"])
def test_offloading_changes_nothing(matrix: Any, ranks: int, what: str) -> None:
    """On the CPU all is in one memory, but it goes through the same partitions and optimizer."""
    cases = matrix(ranks)
    losses, weights = plain(cases, f"adam-{what}")
    assert cases.losses(f"adam-{what}") == pytest.approx(losses, rel=1e-5)
    assert_same(cases.weights(f"adam-{what}"), weights, 5e-5)
    said = artifacts.read_header(cases.folder / f"adam-{what}", "run").stats
    zero = said["deepspeed_config"]["zero_optimization"]
    assert zero["offload_optimizer"] == {"device": "cpu"}
    assert (said["zero_stage"], "offload_param" in zero) == (
        (3, True) if what == "parameters" else (2, False)
    )


@RANKS
def test_bfloat16_follows_the_same_gradient(matrix: Any, ranks: int) -> None:
    """bfloat16 has 8 bits of precision: losses to a hundredth, steps in the same direction."""
    import torch

    cases = matrix(ranks)
    losses, weights = plain(cases, "bfloat16")
    assert cases.losses("bfloat16") == pytest.approx(losses, rel=1e-2)
    before, after = load_base(cases), cases.weights("bfloat16")
    assert {weight.dtype for weight in after.values()} == {torch.bfloat16}
    moved, expected = (
        torch.cat([(new[name].float() - before[name]).flatten() for name in before])
        for new in (after, weights)
    )
    assert float(torch.cosine_similarity(moved, expected, dim=0)) > 0.99
    assert float(moved.norm()) == pytest.approx(float(expected.norm()), rel=0.02)


@RANKS
def test_monitors_are_told_every_step(matrix: Any, ranks: int) -> None:
    cases = matrix(ranks)
    assert cases.losses("monitored") == cases.losses("descent-2-3")
    folder = cases.folder / "watched" / "sums"
    lines = list(csv.reader((folder / "Train_loss.csv").read_text().splitlines()))
    assert lines[0] == ["step", "loss"]
    assert [int(step) for step, _ in lines[1:]] == [12, 24, 36]  # examples so far, places included
    assert [float(loss) for _, loss in lines[1:]] == cases.losses("monitored")
    assert (folder / "Train_grad_norm.csv").exists()
    assert (folder / "Train_Samples_lr.csv").exists()  # DeepSpeed's own


@RANKS
@pytest.mark.parametrize(("stage", "accumulation"), LORA)
def test_lora(matrix: Any, ranks: int, stage: int, accumulation: int) -> None:
    cases = matrix(ranks)
    run = f"lora-{stage}-{accumulation}"
    losses, adapter = plain(cases, run)
    assert cases.losses(run) == pytest.approx(losses, rel=1e-5)
    got = cases.weights(run, "adapter/adapter_model.safetensors")
    assert_same(got, adapter, 2e-6)
    # model/ is the base with alpha / rank = 2 times B A added to every linear layer
    name = "model.layers.1.mlp.down_proj"
    a, b = (adapter[f"base_model.model.{name}.lora_{letter}.weight"] for letter in "AB")
    merged, base = cases.weights(run), load_base(cases)
    assert_same({name: merged[f"{name}.weight"]}, {name: base[f"{name}.weight"] + 2 * b @ a}, 2e-6)
    assert_same({"head": merged["lm_head.weight"]}, {"head": base["lm_head.weight"]}, 0.0)


def load_base(cases: Cases) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(cases.model / "model.safetensors")


@RANKS
def test_loss_per_token(matrix: Any, ranks: int) -> None:
    cases = matrix(ranks)
    losses, weights = plain(cases, "token")
    assert cases.losses("token") == pytest.approx(losses, rel=1e-5)
    assert_same(cases.weights("token"), weights, 2e-6)


@RANKS
def test_micro_batches_of_any_size_and_a_denominator_between_the_numbers(
    matrix: Any, ranks: int
) -> None:
    cases = matrix(ranks)
    losses, weights = plain(cases, "budget")
    assert cases.losses("budget") == pytest.approx(losses, rel=1e-5)
    assert_same(cases.weights("budget"), weights, 2e-6)


def test_two_ranks_are_one_rank_with_twice_the_micro_batch(matrix: Any) -> None:
    one, two = matrix(1), matrix(2)
    for name in ("descent-0-1", "descent-2-1", "adam-0", "adam-2"):
        assert two.losses(name) == pytest.approx(one.losses(name), rel=1e-5)
    for name in ("descent-0-1", "descent-2-1"):
        assert_same(two.weights(name), one.weights(name), 2e-6)


@RANKS
@pytest.mark.parametrize("micro_batch", [1, 4])
def test_weight_three_is_three_copies(matrix: Any, ranks: int, micro_batch: int) -> None:
    cases = matrix(ranks)
    weighted, copied = (f"thrice-{how}-{micro_batch}" for how in ("weight", "copies"))
    assert cases.losses(weighted) == pytest.approx(cases.losses(copied), rel=1e-6)
    assert_same(cases.weights(weighted), cases.weights(copied), 2e-6)
    assert_same(cases.weights(weighted), plain(cases, weighted)[1], 2e-6)


@RANKS
def test_gradient_checkpointing_changes_nothing(matrix: Any, ranks: int) -> None:
    cases = matrix(ranks)
    assert_same(cases.weights("checkpointing"), cases.weights("descent-2-1"), 1e-7)


def test_the_same_run_twice_gives_the_same_bits(matrix: Any) -> None:
    cases = matrix(2)
    assert cases.losses("again") == cases.losses("descent-2-3")
    assert_same(cases.weights("again"), cases.weights("descent-2-3"), 0.0)


def test_the_weights_moved(matrix: Any) -> None:
    """Otherwise nothing above would mean anything."""
    import torch

    cases = matrix(2)
    before = load_base(cases)
    moved = [float((before[k] - v).abs().max()) for k, v in cases.weights("descent-0-1").items()]
    assert min(moved) > 1e-4
    assert torch.tensor(cases.losses("descent-0-1")).std() > 0
