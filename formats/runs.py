"""``run/``: a trained model and the record of its training.

``model/`` is in Hugging Face format; ``metrics.jsonl`` has one line per optimizer step (``FIELDS``);
``run.json``, written last, is the common header with totals in ``stats``. All of it is plain JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from formats.errors import ArtifactError

METRICS = "metrics.jsonl"

# What a line of metrics.jsonl says about a step; see ``read_evaluations`` for the other lines.
FIELDS = {
    "step": "optimizer step, from 0 over the whole run",
    "epoch": "pass over the selection, from 0",
    "loss": "the step's minimised loss: (1/B) sum of weight times example loss, over all ranks",
    "learning_rate": "of this step",
    "grad_norm": "2-norm of the whole gradient before clipping",
    "examples": "examples in the step, all ranks",
    "tokens": "their tokens, prompt and response",
    "padded_tokens": "the same with padding: what was computed",
    "supervised_tokens": "response tokens the loss is taken over",
    "seconds": "from the end of the step before to the end of this one",
    "tokens_per_second": "tokens / seconds, all ranks together",
    "wait_seconds": "per rank: how long it waited for the slowest one",
}


class MetricsWriter:
    """Appends lines to ``metrics.jsonl``, each of them whole on disk before the next."""

    def __init__(self, folder: Path) -> None:
        self._stream = open(folder / METRICS, "a", encoding="utf-8")  # noqa: SIM115

    def write(self, line: dict[str, Any]) -> None:
        """Appends one line."""
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()

    def sync(self) -> None:
        """Makes what was written survive a power cut."""
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Syncs and closes the file."""
        self.sync()
        self._stream.close()


def read_metrics(run: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run's optimizer steps, in order.

    Raises:
        ArtifactError: ``metrics.jsonl`` is missing, or a line is no JSON object.
    """
    return (line for line in _lines(run / METRICS) if "eval" not in line)


def read_evaluations(run: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run's evaluations, in order: ``step`` (taken before it), ``eval``, ``seconds``.

    ``eval`` has, per source, ``loss`` (mean over examples of their tokens' mean), ``token_loss`` (mean
    over tokens), ``examples`` and ``tokens``.

    Raises:
        ArtifactError: as ``read_metrics``.
    """
    return (line for line in _lines(run / METRICS) if "eval" in line)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as stream:
            for number, text in enumerate(stream, 1):
                yield _parse(path, number, text)
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror}") from error


def _parse(path: Path, number: int, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if not isinstance(line, dict):
        raise ArtifactError(f"{path}:{number}: not a JSON object")
    return line
