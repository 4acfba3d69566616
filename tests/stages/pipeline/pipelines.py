"""The prepared chain as a library user describes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from formats.data import DataOptions
from stages.pipeline import Pipeline
from stages.score.settings import ScoreSettings
from tests.prepared import BLOCK, OUTPUTS

STAGES = tuple(OUTPUTS)


def pipeline(**changes: dict[str, Any]) -> Pipeline:
    """What ``tests.prepared.TOML`` says, relative to its folder; changes by stage."""
    settings = {"rank": 8, "dims": 64}
    options: dict[str, Any] = {}
    score = dict(changes.get("score", {}))
    for values, kind in ((settings, ScoreSettings), (options, DataOptions)):
        for name in kind.__dataclass_fields__.keys() & score.keys():
            values[name] = score.pop(name)
    arguments: dict[str, dict[str, Any]] = {
        "score": {
            "data": ("data.jsonl",),
            "model": "model",
            "block_rows": BLOCK,
            "settings": ScoreSettings(**settings),
            "options": DataOptions(**options),
            **score,
        },
        "cluster": {"clusters": 4},
        "select": {"fraction": 0.31, "weights": True},
        "allocate": {"ranks": 1, "micro_batch": 4, "epochs": 2},
        "train": {"model": "model", "learning_rate": 1e-3, "zero_stage": 0},
    }
    for stage in STAGES[1:]:
        arguments[stage] |= changes.get(stage, {})
    return Pipeline(arguments, {stage: Path("work", name) for stage, name in OUTPUTS.items()})
