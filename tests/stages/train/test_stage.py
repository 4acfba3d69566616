"""The train stage as a whole, with real processes on a tiny model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats import artifacts, runs
from formats.errors import (
    ArtifactError,
    DataChangedError,
    DataError,
    NotFiniteError,
    OutputBusyError,
    SettingError,
)
from formats.fingerprints import file_sha256
from stages.launch import free_port
from stages.models import ModelFiles, find_model
from stages.train import expected, train
from tests import tiny
from tests.stages.train import plans
from tests.stages.train.places import EPOCHS, ROOT, Place, figures
from tests.stages.train.test_config import SETTINGS

NO_MODEL = ModelFiles("", Path(), None, "", "")
OLD_KEY = "fd09dca82ac5ad4d4415e953337b2fb559300a687d0877d2028fea9c6dbd2105"


def test_run_json_is_readable_with_json_alone(trained: Place) -> None:
    raw = json.loads((trained.folder / "run" / "run.json").read_text())
    assert (raw["format"], raw["format_version"], raw["complete"]) == (
        "cluster-cli/run",
        "1.0",
        True,
    )
    assert [each["rows"] for each in raw["inputs"]] == [11 * EPOCHS, None]
    assert raw["params"]["learning_rate"] == 1e-3
    stats = raw["stats"]
    assert (stats["steps"], stats["examples"], stats["world_size"]) == (
        2 * EPOCHS,
        11 * EPOCHS,
        2,
    )
    assert (stats["device"], stats["dtype"], stats["zero_stage"]) == ("cpu", "float32", 2)
    assert stats["padded_tokens"] >= stats["tokens"] > stats["supervised_tokens"] > 0
    for name in ("train", "setup", "data", "forward", "backward", "optimizer"):
        assert stats[f"{name}_seconds"] > 0
    assert len(stats["wait_seconds"]) == len(stats["peak_memory_bytes"]) == 2
    assert set(stats["versions"]) == {"python", "torch", "transformers", "deepspeed"}
    assert raw["dataset"]["sources"][0]["path"] == "data.jsonl"


def test_metrics_hold_one_line_per_step(trained: Place) -> None:
    lines = list(runs.read_metrics(trained.folder / "run"))
    stats = artifacts.read_header(trained.folder / "run", "run").stats
    assert [(line["step"], line["epoch"]) for line in lines] == [
        (step, step // 2) for step in range(2 * EPOCHS)
    ]
    assert [line["examples"] for line in lines] == [7, 4] * EPOCHS
    for line in lines:
        assert set(line) == set(runs.FIELDS)
        assert len(line["wait_seconds"]) == 2
    for name in ("tokens", "padded_tokens", "supervised_tokens"):
        assert sum(line[name] for line in lines) == stats[name]
    assert lines[0]["loss"] == stats["first_loss"]
    assert lines[-1]["loss"] == stats["last_loss"] < lines[1]["loss"]


def test_the_model_loads_and_has_learned(trained: Place) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = trained.folder / "run" / "model"
    after = AutoModelForCausalLM.from_pretrained(folder)
    before = AutoModelForCausalLM.from_pretrained(trained.model)
    ids = AutoTokenizer.from_pretrained(folder)("4 plus 4", return_tensors="pt").input_ids
    assert not torch.equal(after(ids).logits, before(ids).logits)
    assert after.config.use_cache is True


def test_only_the_run_is_left(trained: Place) -> None:
    assert sorted(path.name for path in trained.folder.iterdir()) == [
        "allocation",
        "data.jsonl",
        "model",
        "run",
    ]
    assert sorted(path.name for path in (trained.folder / "run").iterdir()) == [
        "checkpoints",
        "metrics.jsonl",
        "model",
        "run.json",
    ]


def test_the_same_run_is_up_to_date_without_loading_torch(trained: Place) -> None:
    stamp = trained.folder / "run" / "run.json"
    os.utime(stamp, (1, 1))
    code = (
        "import sys; from stages.reporting import Console; from stages.train import train\n"
        "train(*sys.argv[1:], learning_rate=1e-3, zero_stage=3, reporter=Console())\n"
        "assert not {'torch', 'transformers', 'deepspeed'} & set(sys.modules)"
    )
    paths = [trained.plan, trained.model, trained.folder / "run"]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "run is up to date\n"
    assert stamp.stat().st_mtime > 1


def test_what_changes_the_result_changes_the_key() -> None:
    def key(**changes: Any) -> str:
        return replace(SETTINGS, **changes).with_key(1, {"model": "a"}).key

    same = {"zero_stage": 3, "quiet": False, "gradient_checkpointing": True, "model": "elsewhere"}
    same |= {"offload": "optimizer", "init_from": "elsewhere"}  # that run's model is in the inputs
    assert key(**same, checkpoint_every=5, resume=True) == key()
    other: list[dict[str, Any]] = [
        {"learning_rate": 1e-4},
        {"warmup": 0.5},
        {"weight_decay": 0.1},
        {"schedule": "linear"},
        {"clip": 2.0},
        {"dtype": "bfloat16"},
        {"seed": 1},
        {"max_length": 99},
        {"deepspeed": {"gradient_clipping": 1.0}},
        {"quantize": "4bit"},
    ]
    assert len({key(**change) for change in other} - {key()}) == len(other)
    assert SETTINGS.with_key(1, {"model": "b"}).key != key()
    assert SETTINGS.with_key(2, {"model": "a"}).key != key()


def test_keys_of_older_runs_stay_as_they_were() -> None:
    """Computed before offload, quantize and init_from were known."""
    assert SETTINGS.with_key(1, {"model": "a"}).key == OLD_KEY


def test_going_on_from_a_finished_run(place: Place, trained: Place) -> None:
    shutil.rmtree(place.model)
    earlier = trained.folder / "run"
    header = train(place.plan, None, place.folder / "run", init_from=earlier, learning_rate=1e-5)
    before = artifacts.read_header(earlier, "run")
    # The same rows as in the last step of the earlier run, two steps at a hundredth of its rate ago.
    lines = list(runs.read_metrics(place.folder / "run"))
    assert lines[1]["loss"] == pytest.approx(before.stats["last_loss"], rel=0.1)
    assert lines[0]["loss"] < 0.8 * before.stats["first_loss"]
    assert [each["path"] for each in header.inputs[1:]] == [
        os.path.relpath(earlier / "model", place.folder),
        os.path.relpath(earlier, place.folder),
    ]
    assert header.inputs[2]["sha256"] == file_sha256(earlier / "run.json")
    allocation = artifacts.read_header(place.plan, "allocation").key
    given = {"init_from": earlier, "learning_rate": 1e-5}
    assert expected(allocation, NO_MODEL, **given)[1] == header.key
    from_scratch = expected(allocation, find_model(earlier / "model"), learning_rate=1e-5)[1]
    assert from_scratch != header.key


def test_nothing_to_go_on_from(place: Place) -> None:
    with pytest.raises(SettingError) as caught:
        train(place.plan, None, place.folder / "run")
    assert str(caught.value) == (
        "there is no model to train; name one with --model, or a run with --init-from"
    )
    with pytest.raises(ArtifactError, match=r"elsewhere does not exist; make it with `cluster-cli"):
        place.train(init_from=place.folder / "elsewhere")
    with pytest.raises(SettingError, match=r"--quantize 4bit needs (bitsandbytes|a CUDA GPU)"):
        place.train(quantize="4bit", lora=2)


def test_a_row_that_breaks_the_loss_is_named_and_the_old_run_stays(place: Place) -> None:
    import torch

    run = place.folder / "run"
    run.mkdir()
    precious = '{"format": "cluster-cli/run", "key": "of an old run"}'
    (run / "run.json").write_text(precious)
    model = tiny.model()
    with torch.no_grad():  # row 9 alone has a "9" in it; row 5 shares its micro-batch
        model.model.embed_tokens.weight[tiny.tokenizer().convert_tokens_to_ids("9")] = float("nan")
    model.save_pretrained(place.folder / "broken")
    tiny.tokenizer().save_pretrained(place.folder / "broken")
    steps = [[[[0, 1], [2]], [[3], [9, 5]]]]
    plan = plans.write_allocation(place.folder / "nine", place.data, steps)
    with pytest.raises(NotFiniteError) as caught:
        train(plan, place.folder / "broken", run)
    ids = json.loads((plan / "rank-00001.jsonl").read_text().splitlines()[1])["ids"]
    assert str(caught.value) == (
        f"step 0: the loss is not finite, on rank 1: row 9 ({ids[0][:12]}); "
        "look at these rows, or lower --learning-rate"
    )
    assert caught.value.data["rows"] == [[], [9]]
    assert (run / "run.json").read_text() == precious


def test_ranks_started_by_torchrun(place: Place, trained: Place) -> None:
    command = [
        *("torchrun", "--nproc-per-node", "2", "-m", "cluster_cli", "train", place.plan),
        *("--model", place.model, "-o", place.folder / "run", "--json"),
        *("--learning-rate", "1e-3"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *map(str, command[1:])],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stats"]["world_size"] == 2
    assert "training 0.0 M weights in float32 on 2 cpu ranks" in done.stderr
    assert figures(place.folder / "run") == figures(trained.folder / "run")
    assert not (place.folder / "run.partial").exists()


@pytest.mark.slow
def test_two_machines_started_by_torchrun(place: Place, trained: Place) -> None:
    """One process per "machine", each with its own torchrun; the plan and the folder are shared."""
    port = str(free_port())
    started = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
                *("--node-rank", str(node), "--nproc-per-node", "1"),
                *("--master-addr", "127.0.0.1", "--master-port", port, "-m", "cluster_cli"),
                *("train", str(place.plan), "--model", str(place.model)),
                *("-o", str(place.folder / "run"), "--learning-rate", "1e-3"),
            ],
            cwd=ROOT,
        )
        for node in range(2)
    ]
    assert [process.wait(300) for process in started] == [0, 0]
    assert figures(place.folder / "run") == figures(trained.folder / "run")


def test_another_number_of_ranks_than_planned(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(SettingError) as caught:
        place.train()
    assert str(caught.value) == (
        f"{place.plan} is made for 2 ranks, but 3 are running; make one with "
        f"`cluster-cli allocate SELECTION --ranks 3 -o {place.plan}`, or start 2 ranks"
    )


def rewrite(path: Path, number: int, line: str | None) -> None:
    lines = path.read_text().splitlines()
    lines[number:] = [line, *lines[number + 1 :]] if line else []
    path.write_text("\n".join(lines) + "\n")


def test_changed_data(place: Place) -> None:
    rewrite(place.data, 3, '{"question": "Other?", "answer": "Yes"}')
    with pytest.raises(DataChangedError) as caught:
        place.train()
    assert str(caught.value) == (
        f"{place.data}:4: row 3 holds something else than when {place.plan} was made; "
        "bring the old data back, or begin again with `cluster-cli score`"
    )
    assert not (place.folder / "run.partial").exists()


def test_shortened_data(place: Place) -> None:
    rewrite(place.data, 8, None)
    with pytest.raises(DataChangedError) as caught:
        place.train()
    assert str(caught.value) == (
        f"{place.data}: row 8 is gone, it was there when {place.plan} was made; "
        "bring the old data back, or begin again with `cluster-cli score`"
    )


def test_data_that_changed_where_the_plan_does_not_look(place: Place) -> None:
    rewrite(place.data, 23, '{"question": "Other?", "answer": "Yes"}')
    with pytest.raises(DataChangedError, match=r"data\.jsonl is no longer the file"):
        place.train()


def test_missing_and_moved_data(place: Place) -> None:
    moved = place.data.rename(place.folder / "moved.jsonl")
    with pytest.raises(DataError, match=r"the data file .*data\.jsonl is missing"):
        place.train()
    with pytest.raises(SettingError) as caught:
        place.train(data=[moved, moved])
    assert str(caught.value) == (
        "--data names 2 files, the allocation was made from 1; "
        "name them all, in the order given to `cluster-cli score`"
    )
    from formats.allocation import Allocation
    from stages.train import plan

    assert plan.check_data(Allocation.open(place.plan), (str(moved),)) == 11


def test_a_contradicting_deepspeed_file(place: Place) -> None:
    path = place.folder / "ds.json"
    path.write_text('{"train_batch_size": 16}')
    with pytest.raises(SettingError) as caught:
        place.train(deepspeed=path)
    assert str(caught.value) == (
        f"{path}: train_batch_size is 16, but the allocation {place.plan} says 8; "
        'write "auto" there, or change the other one'
    )


def test_a_locked_output(place: Place) -> None:
    with artifacts.locked(place.folder / "run"), pytest.raises(OutputBusyError):
        place.train()


def test_an_allocation_that_is_none(place: Place) -> None:
    (place.plan / "manifest.json").unlink()
    with pytest.raises(ArtifactError, match="allocation is incomplete"):
        place.train()
