"""Folders with data, model and allocation, ready to train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from formats import runs
from formats.artifacts import Header
from stages.train import train
from tests import tiny
from tests.stages.train import plans

ROOT = Path(__file__).parents[3]
EPOCHS = 30  # of two steps; long enough for a signal to arrive before the end
# Two ranks, two micro-batches of two places; the last step is partly filled, one micro-batch empty.
STEPS = [[[[0, 1], [2]], [[3, 4], [5, 6]]], [[[7, 8], [9]], [[10], []]]]


class Place:
    """A folder with a data file, a tiny model with dropout, and an allocation of ``STEPS``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = plans.write_data(folder / "data.jsonl")
        self.model = tiny.save(folder / "model", attention_dropout=0.1)
        self.plan = plans.write_allocation(
            folder / "allocation", self.data, STEPS, weights={0: 2.0}, epochs=EPOCHS
        )

    def train(self, output: str = "run", **settings: Any) -> Header:
        """Trains into a folder beside the others."""
        return train(self.plan, self.model, self.folder / output, **settings)


def figures(run: Path) -> list[list[Any]]:
    """What must not differ between two runs of the same; times do."""
    names = [n for n in runs.FIELDS if "second" not in n]
    return [[line[name] for name in names] for line in runs.read_metrics(run)]
