"""TensorBoard, Weights & Biases, Comet and CSV files, as a DeepSpeed configuration names them.

DeepSpeed sets them up and reports the learning rate to them (0.19 does not report the loss any more); what
``metrics.jsonl`` says about a step or an evaluation is reported here. The x axis is DeepSpeed's: the number
of examples so far, all ranks.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from formats.errors import SettingError

_NEEDS = {"tensorboard": "tensorboard", "wandb": "wandb", "comet": "comet_ml"}
_OF_A_STEP = ("loss", "grad_norm", "tokens_per_second", "padded_tokens", "seconds")


def check(config: dict[str, Any], path: str) -> None:
    """Looks for the packages of the monitors that are switched on.

    Args:
        path: the configuration file, for the message.

    Raises:
        SettingError: one is not installed.
    """
    for section, package in _NEEDS.items():
        enabled = config.get(section, {}).get("enabled", False)
        if enabled and importlib.util.find_spec(package) is None:
            raise SettingError(
                f"{path}: {section} is enabled, but {package} is not installed",
                fix=f"pip install {package}",
            )


def stepped(engine: Any, line: dict[str, Any]) -> None:
    """Reports a step; ``line`` is that of ``metrics.jsonl``."""
    _write(engine, {f"Train/{name}": line[name] for name in _OF_A_STEP})


def evaluated(engine: Any, result: dict[str, dict[str, float]]) -> None:
    """Reports an evaluation's losses by source."""
    _write(engine, {f"Eval/{name}/loss": source["loss"] for name, source in result.items()})


def _write(engine: Any, values: dict[str, float | None]) -> None:
    if engine.monitor.enabled and engine.global_rank == 0:
        known = [(name, value) for name, value in values.items() if value is not None]
        engine.monitor.write_events([(*pair, engine.global_samples) for pair in known])
