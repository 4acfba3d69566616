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

# What a line of metrics.jsonl says; evaluations add lines of their own with an "eval" field.
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
    """The lines of a run's ``metrics.jsonl``, in order.

    Raises:
        ArtifactError: it is missing, or a line is no JSON object.
    """
    path = run / METRICS
    try:
        with open(path, encoding="utf-8") as stream:
            for number, text in enumerate(stream, 1):
                line = json.loads(text)
                if not isinstance(line, dict):
                    raise ArtifactError(f"{path}:{number}: not a JSON object")
                yield line
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        if isinstance(error, ArtifactError):
            raise
        raise ArtifactError(f"{path}:{number}: not valid JSON") from error
