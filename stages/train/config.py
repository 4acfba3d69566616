"""The DeepSpeed configuration of a run: the user's file completed, or sensible defaults.

The file is passed through. Only three kinds of values are touched: batch sizes come from the allocation,
``"auto"`` is filled in, and a flag that was given fills in what the file leaves out. A flag or an
allocation that contradicts the file is an error, never a silent winner.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from formats.allocation import Allocation
from formats.errors import SettingError
from stages.train.settings import Settings

AUTO = "auto"
LEARNING_RATE, WEIGHT_DECAY, CLIP, ZERO_STAGE = 2e-5, 0.0, 1.0, 2


def read_file(path: Path) -> dict[str, Any]:
    """The JSON object in a DeepSpeed configuration file.

    Raises:
        SettingError: it cannot be read or is no JSON object.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(
            f"cannot read the DeepSpeed configuration {path}: {error.strerror}"
        ) from error
    except ValueError as error:
        raise SettingError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise SettingError(f"{path} holds a JSON {type(config).__name__}, not an object")
    return config


def build(settings: Settings, allocation: Allocation, dtype: str) -> dict[str, Any]:
    """The complete configuration.

    Args:
        dtype: the name of the type to train in, used where neither file nor flag says one.

    Raises:
        SettingError: file and allocation, or file and flag, contradict each other; or an ``"auto"``
            stands where nothing is known to fill in. All problems are named at once.
    """
    filling = _Filling(copy.deepcopy(settings.deepspeed), settings.deepspeed_path)
    filling.batch_sizes(allocation)
    filling.optimization(settings, allocation.steps)
    filling.precision(settings, dtype)
    filling.finish()
    return filling.config


def dtype_name(config: dict[str, Any]) -> str:
    """The type the configuration trains in."""
    for section, name in (("bf16", "bfloat16"), ("bfloat16", "bfloat16"), ("fp16", "float16")):
        if config.get(section, {}).get("enabled"):
            return name
    return "float32"


def zero_stage(config: dict[str, Any]) -> int:
    """The configuration's ZeRO stage."""
    return int(config.get("zero_optimization", {}).get("stage", 0))


def learning_rate(config: dict[str, Any], settings: Settings) -> float:
    """The highest rate: the configuration's, where its optimizer has one."""
    said = config.get("optimizer", {}).get("params", {}).get("lr", settings.learning_rate)
    return LEARNING_RATE if said is None else float(said)


def pin_memory(config: dict[str, Any]) -> None:
    """Offloads to memory that a GPU copies from while it computes, unless the file says otherwise."""
    for name in ("offload_optimizer", "offload_param"):
        if section := config["zero_optimization"].get(name):
            section.setdefault("pin_memory", True)


class _Filling:
    """A configuration on its way to being complete, and the problems met so far."""

    def __init__(self, given: dict[str, Any] | None, path: str) -> None:
        self.given = given is not None
        self.path = path
        self.config: dict[str, Any] = given or {}
        self.problems: list[str] = []

    def put(self, name: str, value: Any, said: str, *, default: Any = None) -> None:
        """Fills in ``a.b.c``.

        Args:
            value: what flag or allocation say; None when they say nothing.
            said: who says so, for the message.
            default: for ``"auto"``, and where there is no file, when ``value`` is None.
        """
        *sections, last = name.split(".")
        inside = self.config
        for section in sections:
            inside = inside.setdefault(section, {})
        have = inside.get(last)
        filler = default if value is None else value
        if have == AUTO or (have is None and (value is not None or not self.given)):
            inside[last] = filler
        elif value is not None and have is not None and have != value:
            self.problems.append(f"{self.path}: {name} is {have!r}, but {said} {value!r}")

    def batch_sizes(self, allocation: Allocation) -> None:
        micro, accumulation = allocation.micro_batch, allocation.accumulation
        said = f"the allocation {allocation.path} says"
        self.put("train_batch_size", allocation.ranks * accumulation * micro, said)
        self.put("train_micro_batch_size_per_gpu", micro, said)
        self.put("gradient_accumulation_steps", accumulation, said)

    def optimization(self, settings: Settings, steps: int) -> None:
        self.put("gradient_clipping", settings.clip, "--clip says", default=CLIP)
        usual = 3 if settings.offload == "parameters" else ZERO_STAGE
        self.put("zero_optimization.stage", settings.zero_stage, "--zero-stage says", default=usual)
        self._memory(settings)
        self.config.setdefault("steps_per_print", 10**9)  # metrics.jsonl says it all
        zero = self.config["zero_optimization"]
        for name in [name for name, value in zero.items() if value == AUTO]:
            del zero[name]  # DeepSpeed's own defaults: sizes of buckets and the like
        if zero.get("offload_optimizer"):
            self.config.setdefault("zero_force_ds_cpu_optimizer", False)
        rate = LEARNING_RATE if settings.learning_rate is None else settings.learning_rate
        if "optimizer" in self.config:
            self.put(
                "optimizer.params.lr", settings.learning_rate, "--learning-rate says", default=rate
            )
            self.put(
                "optimizer.params.weight_decay",
                settings.weight_decay,
                "--weight-decay says",
                default=WEIGHT_DECAY,
            )
            self._autos("optimizer", {"betas": [0.9, 0.999], "eps": 1e-8})
        if "scheduler" in self.config:
            warm = max(1, round(settings.warmup * steps))
            self._autos(
                "scheduler",
                {
                    "warmup_min_lr": 0.0,
                    "warmup_max_lr": rate,
                    "warmup_num_steps": warm,
                    "total_num_steps": steps,
                },
            )

    def _memory(self, settings: Settings) -> None:
        """Where the optimizer's state and the parameters lie (ZeRO-Offload, Ren et al. 2021)."""
        said, stage = f"--offload {settings.offload} says", zero_stage(self.config)
        if settings.offload:
            self.put("zero_optimization.offload_optimizer.device", "cpu", said)
        if settings.offload == "parameters":
            self.put("zero_optimization.offload_param.device", "cpu", said)
        least = {"optimizer": 1, "parameters": 3}.get(str(settings.offload), 0)
        if stage < least:
            self.problems.append(
                f"{self.path}: zero_optimization.stage is {stage}, but --offload {settings.offload} "
                f"needs {least} or more"
            )
        if settings.quantize and stage == 3:
            self.problems.append(
                f"{self.path}: zero_optimization.stage is 3, but --quantize {settings.quantize} "
                "needs 2 or less"
            )

    def precision(self, settings: Settings, dtype: str) -> None:
        wanted = None if settings.dtype == AUTO else settings.dtype
        for section, name in (("bf16", "bfloat16"), ("fp16", "float16")):
            said = f"--dtype {wanted} says"
            enabled = None if wanted is None else wanted == name
            if section in self.config:
                self.put(f"{section}.enabled", enabled, said, default=dtype == name)
            elif enabled or (not self.given and dtype == name):
                self.config[section] = {"enabled": True}
        if not self.given and zero_stage(self.config) and dtype_name(self.config) == "bfloat16":
            # In bfloat16, sums over many micro-batches lose the small gradients. DeepSpeed has no
            # other way without ZeRO.
            self.config["data_types"] = {"grad_accum_dtype": "fp32"}

    def _autos(self, section: str, values: dict[str, Any]) -> None:
        params = self.config[section].get("params", {})
        for name, value in values.items():
            if params.get(name) == AUTO:
                params[name] = value

    def finish(self) -> None:
        for name in _find_auto(self.config, ""):
            self.problems.append(f'{self.path}: nothing is known to put for {name} = "auto"')
        if self.problems:
            raise SettingError(
                "; ".join(self.problems), fix='write "auto" there, or change the other one'
            )


def _find_auto(value: Any, name: str) -> list[str]:
    if value == AUTO:
        return [name]
    if isinstance(value, dict):
        return [
            found
            for key, part in value.items()
            for found in _find_auto(part, f"{name}.{key}" if name else key)
        ]
    return []
