"""``evaluation.json``: what a model does on data, figure by figure and example by example.

One JSON object on one line: the common header (``formats.artifacts``), and

* ``results``: ``{"overall": {metric: figure}, "by": {column: {value: {metric: figure}}}}``, a figure being
  ``{"value", "low", "high", "examples"}`` with a 95 % bootstrap interval (null for a single example);
* ``tasks``: figures of the lm-evaluation-harness by task, where tasks were asked for;
* ``examples``: columns of equal length, one entry per measured row, by ascending row (``COLUMNS``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from formats import artifacts
from formats.errors import ArtifactError

KIND = "evaluation"

COLUMNS = {
    "row": "0-based, of the data as read",
    "id": "content hash, hexadecimal",
    "loss": "mean loss of the answer's tokens, in nats",
    "tokens": "how many these are",
    "groups": "per --by column, the row's value as text",
    "answer": "greedy answer",
    "exact_match": "1 where answer and reference are equal once normalised as SQuAD does",
    "f1": "overlap of their words, 0 to 1, normalised alike",
    "verbatim": "1 where they are equal to the letter",
    "log_likelihood": "per choice, summed over its tokens",
    "accuracy": "1 where the right choice is the likeliest",
    "accuracy_normalised": "the same per character of the choice",
    "pass_at_1": "1 where the greedy program passes its tests",
    "outcome": "passed, or why a program did not",
}

# Metrics as they are reported. All but the loss per token are means over examples.
METRICS = (
    *("loss", "token_loss", "exact_match", "f1", "verbatim"),
    *("accuracy", "accuracy_normalised", "pass_at_1"),
)
LOSSES = ("loss", "token_loss")


@dataclass(frozen=True)
class Evaluation:
    """An evaluation read from disk.

    Attributes:
        path: where it was read from.
        header: the common header; ``stats`` has counts and seconds.
        results: figures overall and by group, as in the module's text.
        tasks: figures of the lm-evaluation-harness.
        examples: columns, see ``COLUMNS``.
    """

    path: Path
    header: artifacts.Header
    results: dict[str, Any]
    tasks: dict[str, Any]
    examples: dict[str, Any]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Evaluation:
        """Reads it.

        Raises:
            ArtifactMissingError, ArtifactError: see ``artifacts.read_header``; or a part is missing, or
                the columns are not of one length.
        """
        header = artifacts.read_header(path, KIND)
        parts = {name: header.extra.get(name) for name in ("results", "tasks", "examples")}
        for name, part in parts.items():
            if not isinstance(part, dict):
                raise ArtifactError(f"{path} has no {name}", fix=_rebuild(path))
        lengths = {len(column) for column in _flat(parts["examples"] or {}).values()}
        if len(lengths) > 1:
            raise ArtifactError(f"{path}: its columns differ in length", fix=_rebuild(path))
        return cls(Path(path), header, **parts)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.examples.get("row", []))

    def column(self, name: str) -> np.ndarray:
        """(N) float64 numbers of one column, NaN where a row has none.

        Raises:
            ArtifactError: there is no such column of numbers.
        """
        try:
            return np.array(self.examples[name], np.float64)
        except (KeyError, TypeError, ValueError):
            raise ArtifactError(
                f"{self.path} has no column of numbers {name!r}", fix=_rebuild(self.path)
            ) from None


def write_evaluation(
    output: Path,
    header: artifacts.Header,
    *,
    results: dict[str, Any],
    tasks: dict[str, Any],
    examples: dict[str, Any],
) -> None:
    """Writes an evaluation atomically; the caller holds the lock.

    Raises:
        ArtifactError: the file cannot be written.
    """
    whole = {**header.to_json(), "results": results, "tasks": tasks, "examples": examples}
    with artifacts.atomic_file(output) as stream:
        stream.write(json.dumps(whole, ensure_ascii=False, allow_nan=False) + "\n")


def ratios(examples: dict[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Every metric the columns give, as two (N) float64 arrays; the metric is the ratio of their sums.

    Both are NaN where an example has no value.
    """
    found = {}
    for name in METRICS:
        source = "loss" if name == "token_loss" else name
        if source not in examples:
            continue
        value = np.array(examples[source], np.float64)
        weight = np.where(np.isnan(value), np.nan, 1.0)
        if name == "token_loss":
            weight = weight * np.array(examples["tokens"], np.float64)
        found[name] = (value * weight, weight)
    return found


def paired(evaluations: Sequence[Evaluation], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """The same metric of several models on the same examples, to compare them pair by pair.

    Returns:
        numerators and denominators, each (R, N) float64 for R evaluations and the N examples that all
        of them measured; a model's figure is the ratio of its sums, and resampling the N columns keeps
        the pairs together.

    Raises:
        ArtifactError: they are not of the same examples, or one lacks the metric.
    """
    first = evaluations[0]
    places = list(zip(first.examples["row"], first.examples["id"], strict=True))
    sides = []
    for other in evaluations:
        if list(zip(other.examples["row"], other.examples["id"], strict=True)) != places:
            raise ArtifactError(
                f"{first.path} and {other.path} are not of the same examples",
                fix="evaluate both on the same data",
            )
        found = ratios(other.examples)
        if metric not in found:
            raise ArtifactError(f"{other.path} has no {metric}", fix=_rebuild(other.path))
        sides.append(found[metric])
    top_RN, bottom_RN = (np.stack([side[i] for side in sides]) for i in (0, 1))
    whole_N = ~np.isnan(top_RN).any(axis=0)
    return top_RN[:, whole_N], bottom_RN[:, whole_N]


def groups(examples: dict[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """For each ``--by`` column, its values in order and the (n) int64 places of their examples."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for column, values in examples.get("groups", {}).items():
        text = np.array(values, dtype=object)
        found[column] = {value: np.flatnonzero(text == value) for value in sorted(set(values))}
    return found


def _flat(examples: dict[str, Any]) -> dict[str, Any]:
    inner = examples.get("groups", {})
    return {**{n: c for n, c in examples.items() if n != "groups"}, **inner}


def _rebuild(path: str | os.PathLike[str]) -> str:
    return f"rebuild it with `cluster-cli evaluate ... -o {path}`"
