"""The DeepSpeed configuration: defaults, the user's file passed through, contradictions."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats import artifacts
from formats.allocation import Allocation
from formats.errors import ArtifactError, SettingError
from stages.train import config, monitors, quantize
from stages.train.settings import Settings

PLAN = Allocation(
    Path("allocation"),
    artifacts.Header(
        kind="allocation",
        key="",
        params={},
        inputs=[],
        extra={
            "ranks": 4,
            "micro_batch": 2,
            "accumulation": 3,
            "epochs": 2,
            "steps_per_epoch": 50,
        },
    ),
)
SETTINGS = Settings(
    allocation="allocation",
    model="model",
    output="run",
    learning_rate=None,
    warmup=0.03,
    weight_decay=None,
    schedule="cosine",
    clip=None,
    zero_stage=None,
    deepspeed=None,
    deepspeed_path="",
    dtype="auto",
    gradient_checkpointing=False,
    seed=0,
    max_length=None,
    data=(),
    quiet=True,
)


def build(file: dict[str, Any] | None = None, dtype: str = "float32", **flags: Any) -> Any:
    settings = replace(SETTINGS, deepspeed=file, deepspeed_path="ds.json", **flags)
    return config.build(settings, PLAN, dtype)


BATCHES = {
    "train_batch_size": 24,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 3,
}


def test_defaults_on_the_cpu() -> None:
    assert build() == {
        **BATCHES,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 2},
        "steps_per_print": 10**9,
    }


def test_defaults_on_a_gpu() -> None:
    got = build(dtype="bfloat16")
    assert got["bf16"] == {"enabled": True}
    assert config.dtype_name(got) == "bfloat16"


def test_flags() -> None:
    got = build(clip=0.5, zero_stage=0, dtype="float16")
    assert (got["gradient_clipping"], config.zero_stage(got)) == (0.5, 0)


def test_a_file_is_passed_through_and_only_batch_sizes_are_added() -> None:
    file = {"wall_clock_breakdown": True, "tensorboard": {"enabled": True}, "steps_per_print": 7}
    assert build(file) == {**file, **BATCHES, "zero_optimization": {}}
    assert config.zero_stage(build(file)) == 0


def test_auto_is_filled_in() -> None:
    file = {
        **dict.fromkeys(BATCHES, "auto"),
        "gradient_clipping": "auto",
        "zero_optimization": {"stage": "auto", "reduce_bucket_size": "auto", "overlap_comm": True},
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
        },
        "scheduler": {
            "type": "WarmupDecayLR",
            "params": {
                "warmup_min_lr": "auto",
                "warmup_max_lr": "auto",
                "warmup_num_steps": "auto",
                "total_num_steps": "auto",
            },
        },
    }
    assert build(file, "bfloat16", learning_rate=1e-4) == {
        **BATCHES,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 2, "overlap_comm": True},
        "bf16": {"enabled": True},
        "fp16": {"enabled": False},
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0},
        },
        "scheduler": {
            "type": "WarmupDecayLR",
            "params": {
                "warmup_min_lr": 0.0,
                "warmup_max_lr": 1e-4,
                "warmup_num_steps": 3,
                "total_num_steps": 100,
            },
        },
        "steps_per_print": 10**9,
    }
    assert file["train_batch_size"] == "auto"  # the caller's dictionary is left alone


FIX = '; write "auto" there, or change the other one'


@pytest.mark.parametrize(
    ("file", "flags", "message"),
    [
        (
            {"train_batch_size": 64},
            {},
            "ds.json: train_batch_size is 64, but the allocation allocation says 24",
        ),
        (
            {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1},
            {},
            "ds.json: train_micro_batch_size_per_gpu is 8, but the allocation allocation says 2; "
            "ds.json: gradient_accumulation_steps is 1, but the allocation allocation says 3",
        ),
        (
            {"zero_optimization": {"stage": 3}},
            {"zero_stage": 2},
            "ds.json: zero_optimization.stage is 3, but --zero-stage says 2",
        ),
        (
            {"gradient_clipping": 1.0},
            {"clip": 0.5},
            "ds.json: gradient_clipping is 1.0, but --clip says 0.5",
        ),
        (
            {"optimizer": {"type": "Adam", "params": {"lr": 0.1}}},
            {"learning_rate": 0.2},
            "ds.json: optimizer.params.lr is 0.1, but --learning-rate says 0.2",
        ),
        (
            {"bf16": {"enabled": True}},
            {"dtype": "float32"},
            "ds.json: bf16.enabled is True, but --dtype float32 says False",
        ),
        (
            {"zero_optimization": {"stage": 2}},
            {"offload": "parameters"},
            "ds.json: zero_optimization.stage is 2, but --offload parameters needs 3 or more",
        ),
        (
            {"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme"}}},
            {"offload": "optimizer"},
            "ds.json: zero_optimization.offload_optimizer.device is 'nvme', but --offload optimizer "
            "says 'cpu'",
        ),
        (
            {"zero_optimization": {"stage": 3}},
            {"quantize": "4bit"},
            "ds.json: zero_optimization.stage is 3, but --quantize 4bit needs 2 or less",
        ),
        (
            {"flops_profiler": {"top_modules": "auto"}},
            {},
            'ds.json: nothing is known to put for flops_profiler.top_modules = "auto"',
        ),
    ],
)
def test_contradictions(file: dict[str, Any], flags: dict[str, Any], message: str) -> None:
    dtype = flags.pop("dtype", "auto")
    settings = replace(SETTINGS, deepspeed=file, deepspeed_path="ds.json", dtype=dtype, **flags)
    with pytest.raises(SettingError) as caught:
        config.build(settings, PLAN, "float32")
    assert str(caught.value) == message + FIX


def test_offloading_takes_the_plain_optimizer() -> None:
    got = build({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})
    assert got["zero_force_ds_cpu_optimizer"] is False


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_bfloat16_sums_gradients_in_float32_where_deepspeed_lets_it(stage: int) -> None:
    assert build(dtype="bfloat16", zero_stage=stage)["data_types"] == {"grad_accum_dtype": "fp32"}
    assert "data_types" not in build(dtype="bfloat16", zero_stage=0)
    assert "data_types" not in build({}, dtype="bfloat16", zero_stage=stage)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read the DeepSpeed configuration {}: No such file or directory"),
        (
            "{",
            "{} is not valid JSON: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1)",
        ),
        ("[]", "{} holds a JSON list, not an object"),
    ],
)
def test_unreadable_files(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "ds.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingError) as caught:
        config.read_file(path)
    assert str(caught.value) == message.replace("{}", str(path), 1)


def test_offload_flags() -> None:
    got = build(offload="optimizer")["zero_optimization"]
    assert got == {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    on_cpu = {"device": "cpu"}
    got = build(offload="parameters")
    assert got["zero_optimization"] == {
        "stage": 3,
        "offload_optimizer": on_cpu,
        "offload_param": on_cpu,
    }
    config.pin_memory(got)
    assert got["zero_optimization"]["offload_param"] == {**on_cpu, "pin_memory": True}
    file = {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "max_in_cpu": 7}}}
    got = build(file, offload="parameters")["zero_optimization"]
    assert got["offload_param"] == {"device": "cpu", "max_in_cpu": 7}
    assert got["offload_optimizer"] == on_cpu


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"offload": "disk"}, "offload is 'disk', it must be one of optimizer, parameters"),
        (
            {"offload": "parameters", "zero_stage": 2},
            "offload parameters needs zero_stage 3, it is 2",
        ),
        (
            {"offload": "optimizer", "zero_stage": 0},
            "offload optimizer needs zero_stage 1, 2 or 3, it is 0",
        ),
        ({"quantize": "8bit", "lora": 2}, "quantize is '8bit', it must be one of 4bit"),
        ({"quantize": "4bit"}, "quantize needs lora: quantized weights stay as they are"),
        (
            {"quantize": "4bit", "lora": 2, "zero_stage": 3},
            "quantize needs zero_stage 0, 1 or 2, it is 3",
        ),
    ],
)
def test_flags_about_memory(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        replace(SETTINGS, **flags).check()
    assert str(caught.value) == message


def test_what_quantization_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    there: set[str] = set()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in there else None)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    for package, message in (
        ("bitsandbytes", "--quantize 4bit needs bitsandbytes; pip install 'cluster-cli[qlora]'"),
        ("peft", "--quantize 4bit needs peft; pip install 'cluster-cli[qlora]'"),
        (
            "",
            "--quantize 4bit needs a CUDA GPU; leave --quantize out, or train on a GPU",
        ),
    ):
        with pytest.raises(SettingError) as caught:
            quantize.check()
        assert str(caught.value) == message
        there.add(package)


def test_monitors_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    off = {"tensorboard": {"enabled": False}, "csv_monitor": {"enabled": True}}
    monitors.check(build(off), "ds.json")
    with pytest.raises(SettingError) as caught:
        monitors.check(build({**off, "wandb": {"enabled": True}}), "ds.json")
    assert str(caught.value) == (
        "ds.json: wandb is enabled, but wandb is not installed; pip install wandb"
    )


def test_a_readable_file(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(BATCHES))
    assert config.read_file(path) == BATCHES


def test_all_values_out_of_range_are_named_at_once() -> None:
    with pytest.raises(SettingError) as caught:
        replace(SETTINGS, learning_rate=0.0, warmup=1.0, schedule="step", dtype="int8").check()
    assert str(caught.value) == (
        "learning_rate is 0.0, it must be above 0; "
        "warmup is 1.0, it must be a part of the steps, 0 to below 1; "
        "schedule is 'step', it must be one of cosine, linear, constant; "
        "dtype is 'int8', it must be one of auto, float32, bfloat16, float16"
    )


def test_settings_survive_the_way_to_the_workers(tmp_path: Path) -> None:
    settings = replace(SETTINGS, data=("a.jsonl", "b.jsonl"), deepspeed={"x": [1]}, key="k")
    settings.write(tmp_path)
    assert Settings.read(tmp_path) == settings


@pytest.mark.parametrize("text", [None, "{", '{"data": [], "eval_data": [], "novelty": 1}'])
def test_settings_nobody_can_read(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "settings.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ArtifactError) as caught:
        Settings.read(tmp_path)
    assert str(caught.value) == (
        f"{path} does not say which run was being built there; begin again with --force"
    )
