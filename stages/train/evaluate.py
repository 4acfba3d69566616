"""The answer loss on data that are not trained on, per source, by all ranks together."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from formats.allocation import MicroBatch
from formats.data import DataOptions, open_dataset
from stages.train.batches import Batch, collate
from stages.train.loss import token_losses
from stages.workers import world

SUMS = ("loss", "examples", "token_loss", "tokens")


@dataclass
class Evaluation:
    """Data to evaluate on.

    Attributes:
        names: of the sources, made distinct.
        render: an example to its tokens.
        micro_batch: examples at once.
        device: where to compute.
    """

    dataset: Any
    names: list[str]
    render: Callable[[Any], Any]
    micro_batch: int
    device: str

    @classmethod
    def open(
        cls, paths: tuple[str, ...], options: dict[str, Any], render: Any, micro: int, device: str
    ) -> Evaluation:
        """Opens files that are read as the training data were.

        Raises:
            DataError, BadRowsError: see ``formats.data.open_dataset``.
        """
        dataset = open_dataset(paths, DataOptions.from_json({**options, "limit": None}))
        names = [os.path.basename(source.path) for source in dataset.sources]
        if len(set(names)) < len(names):
            names = [source.path for source in dataset.sources]
        return cls(dataset, names, render, micro, device)

    def run(self, engine: Any) -> dict[str, dict[str, float]]:
        """Per source: ``loss``, the mean over examples of their tokens' mean; ``token_loss``, the mean
        over tokens; ``examples``; ``tokens``. All ranks call it and get the same.
        """
        sums = np.zeros((len(self.names), len(SUMS)))
        engine.eval()
        with torch.no_grad():
            for batch, sources in self._share(world().rank, world().size):
                losses = token_losses(engine, batch, self.device).double().cpu().numpy()
                np.add.at(sums, sources, _sums(batch, losses, len(sources)))
        engine.train()
        total = torch.from_numpy(sums).to(self.device)
        dist.all_reduce(total)
        return {
            name: {
                "loss": loss / max(1.0, examples),
                "token_loss": token_loss / max(1.0, tokens),
                "examples": int(examples),
                "tokens": int(tokens),
            }
            for name, (loss, examples, token_loss, tokens) in zip(
                self.names, total.tolist(), strict=True
            )
        }

    def _share(self, rank: int, ranks: int) -> Any:
        """This rank's batches with their examples' sources; as many as any other rank's."""
        starts = range(0, len(self.dataset), self.micro_batch)
        for turn in range(-(-len(starts) // ranks)):
            number = turn * ranks + rank
            rows = range(0)
            if number < len(starts):
                rows = range(len(self.dataset))[starts[number] :][: self.micro_batch]
            yield self._batch(list(rows))

    def _batch(self, rows: list[int]) -> tuple[Batch, np.ndarray]:
        ends = np.cumsum([source.rows for source in self.dataset.sources])
        count = len(rows)
        plan = MicroBatch(0, 0, 0, rows, [""] * count, [1.0] * count, [0] * count, [0] * count)
        batch = collate(plan, [self.render(self.dataset[row]) for row in rows])
        return batch, np.searchsorted(ends, rows, side="right")


def _sums(batch: Batch, losses: np.ndarray, examples: int) -> np.ndarray:
    """(examples, 4), in the order of ``SUMS``; examples without a response token count for nothing."""
    if not examples:
        return np.zeros((0, len(SUMS)))
    tokens = np.bincount(batch.example, minlength=examples)
    total = np.bincount(batch.example, weights=losses, minlength=examples)
    return np.stack([total / np.maximum(tokens, 1), tokens > 0, total, tokens], axis=1)


def overall(result: dict[str, dict[str, float]]) -> float:
    """The mean loss over all examples of all sources."""
    examples = sum(source["examples"] for source in result.values())
    return sum(s["loss"] * s["examples"] for s in result.values()) / max(1, examples)
