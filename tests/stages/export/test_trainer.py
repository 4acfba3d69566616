"""TRL's own SFTTrainer on two processes: which rows each rank sees, and the weighted gradient."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from formats.allocation import Allocation
from formats.errors import SettingError
from stages.export import export
from tests import tiny
from tests.stages.export import places
from tests.stages.train import plans, reference

pytest.importorskip("trl")
ROOT = Path(__file__).parents[3]
# The last step is partly filled, and rank 1 has nothing to do in its second half.
STEPS = [[[[0, 1], [2]], [[3, 4], [5, 6]]], [[[7, 8], [9]], [[10], []]]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes have trained in it, see ``trl_worker``."""
    folder = tmp_path_factory.mktemp("trl")
    data = plans.write_data(folder / "data.jsonl")
    tiny.save(folder / "model")
    plans.write_allocation(
        folder / "allocation", data, STEPS, weights={0: 2.5, 5: 0.25, 10: 4.0}, epochs=2
    )
    export(places.full(folder, data), folder / "exported", to="trl")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("-m", "tests.stages.export.trl_worker", str(folder)),
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def seen(place: Path, rank: int) -> Any:
    return json.loads((place / f"seen-{rank}.json").read_text())


@pytest.mark.parametrize("rank", [0, 1])
def test_every_rank_sees_what_the_plan_gives_it(place: Path, rank: int) -> None:
    planned = [batch.ids for batch in Allocation.open(place / "allocation").rank(rank)]
    assert seen(place, rank)["planned"] == planned
    assert planned[-1] == ([] if rank else planned[-1])


@pytest.mark.parametrize("rank", [0, 1])
def test_an_export_is_dealt_out_as_planned(place: Path, rank: int) -> None:
    """With the settings written beside it, by a trainer that knows nothing of the plan."""
    planned = [batch.ids for batch in Allocation.open(place / "full").rank(rank)]
    assert seen(place, rank)["plain"] == planned


def test_the_weighted_gradient_is_that_of_plain_pytorch(place: Path) -> None:
    from safetensors.torch import load_file
    from torch.optim import SGD

    losses, weights = reference.train(
        place / "allocation", place / "model", partial(SGD, lr=0.5), clip=0
    )
    assert seen(place, 0)["losses"] == pytest.approx(losses, abs=1e-4)
    got = load_file(place / "trained" / "model.safetensors")
    before = load_file(place / "model" / "model.safetensors")
    for name, weight in got.items():
        assert float((weight - weights[name]).abs().max()) <= 2e-5, name
        assert float((weight - before[name]).abs().max()) > 1e-4, name


def test_a_resumed_trainer_skips_into_the_right_epoch(tmp_path: Path) -> None:
    """What Transformers does with a loader when it goes on from a checkpoint."""
    from accelerate import skip_first_batches

    from stages.export.trainer import _collated, _PlanLoader, _PlanSampler, _Weighed

    data = plans.write_data(tmp_path / "data.jsonl")
    plan = Allocation.open(
        plans.write_allocation(tmp_path / "allocation", data, STEPS, weights={9: 2.0}, epochs=2)
    )
    ids = sorted({identity for batch in plan.rank(0) for identity in batch.ids})
    positions = {identity: number for number, identity in enumerate(ids)}
    loader = _PlanLoader(
        _Weighed(ids),
        batch_sampler=_PlanSampler(plan, 0, positions),
        collate_fn=lambda items: _collated(items, lambda rows: {"ids": rows}),
    )
    assert len(loader) == 4
    rest = skip_first_batches(loader, 2)
    rest.batch_sampler.batch_sampler.set_epoch(1)
    batches = list(plan.rank(0))[6:]
    assert [batch["ids"] for batch in rest] == [batch.ids for batch in batches]
    assert [batch["plan_weight"] for batch in rest] == [batch.weights for batch in batches]
    loader.set_epoch(0)
    assert [batch["ids"] for batch in loader] == [batch.ids for batch in list(plan.rank(0))[:4]]


def test_arguments_and_data_that_do_not_fit_the_plan(tmp_path: Path) -> None:
    from datasets import Dataset

    from stages.export.trainer import _check, _positions, plan_arguments

    data = plans.write_data(tmp_path / "data.jsonl")
    path = plans.write_allocation(tmp_path / "allocation", data, STEPS, epochs=2)
    plan = Allocation.open(path)
    right = {**plan_arguments(path), "world_size": 2}
    assert right == {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 2,
        "world_size": 2,
    }
    _check(plan, SimpleNamespace(**right))
    with pytest.raises(SettingError) as caught:
        _check(plan, SimpleNamespace(**{**right, "num_train_epochs": 3.0, "world_size": 1}))
    assert str(caught.value) == (
        f"{path}: num_train_epochs is 3.0, the plan says 2; world_size is 1, the plan says 2; "
        "give the arguments that plan_arguments returns, and start as many processes"
    )
    with pytest.raises(SettingError) as caught:
        _positions(plan, 0, Dataset.from_dict({"input_ids": [[1, 2]]}))
    assert str(caught.value) == (
        "the training data have no column id once they are prepared; "
        "make them with plan_rows, and leave packing off"
    )
    ids = sorted({identity for batch in plan.rank(0) for identity in batch.ids})
    with pytest.raises(SettingError) as caught:
        _positions(plan, 0, Dataset.from_dict({"id": ids[1:]}))
    assert str(caught.value) == (
        f"the training data lack 1 of the planned rows, the first with id {ids[0]}; "
        "the trainer may have dropped them as too long: raise max_length, or use plan_rows"
    )
