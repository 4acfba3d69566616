"""Checks of a ``run/``: its metrics, and that its weights are whole files of finite shape."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.errors import ArtifactError
from formats.runs import METRICS, read_metrics


def run(path: Path) -> str:
    """Checks a ``run/``.

    Raises:
        ArtifactError: see ``stages.validate.validate``.
    """
    header = artifacts.read_header(path, "run")
    steps = [line for line in read_metrics(path) if "eval" not in line]
    wanted = header.stats.get("steps")
    if len(steps) != wanted:
        raise ArtifactError(f"{path / METRICS} has {len(steps)} steps, run.json says {wanted}")
    for number, line in enumerate(steps):
        if line.get("step") != number:
            raise ArtifactError(f"{path / METRICS}: step {line.get('step')} where {number} belongs")
        if not math.isfinite(line.get("loss", math.nan)):
            raise ArtifactError(f"{path / METRICS}: the loss of step {number} is not a number")
    model = path / "model"
    if not any((model / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise ArtifactError(f"{model} holds no model: there is no config.json")
    files = sorted(model.glob("*.safetensors"))
    if not files:
        raise ArtifactError(f"{model} holds no model: there is no .safetensors file")
    tensors = sum(_check_weights(file) for file in files)
    return f"{len(steps):,} steps, {tensors:,} weights of full length"


def _check_weights(file: Path) -> int:
    """The header of a safetensors file, and that its tensors fill the file; how many there are."""
    try:
        with open(file, "rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            size = file.stat().st_size
            if not 2 <= length <= size - 8:
                raise ValueError("its header is longer than the file")
            table: dict[str, Any] = json.loads(stream.read(length))
        table.pop("__metadata__", None)
        end = max((entry["data_offsets"][1] for entry in table.values()), default=0)
    except OSError as error:
        raise ArtifactError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ArtifactError(f"{file} is damaged: {error}") from error
    if 8 + length + end != size:
        raise ArtifactError(f"{file} has {size:,} bytes, not {8 + length + end:,}: it is cut short")
    return len(table)
