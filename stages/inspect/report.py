"""The inspect stage: one artifact as a JSON object for people and programs."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from formats import allocation, artifacts, runs, selection, signatures
from formats.clusters import Clusters
from formats.kinds import artifact_path, find_kind
from stages.inspect.cards import cards
from stages.inspect.origin import origin

ROWS = 5
_SHOWN_DIMS = 4


def inspect(path: Path, *, rows: int = ROWS, examples: int = 3) -> dict[str, Any]:
    """Everything worth knowing about an artifact, from its header and its first rows.

    Args:
        path: of any artifact, or of its header file.
        rows: how many first rows.
        examples: how many typical and how many unusual examples of each cluster.

    Returns:
        ``path``, ``kind``, the header's fields, ``origin`` (see ``stages.inspect.origin``), ``rows``
        (the first ones), and of a cluster map ``clusters`` (see ``stages.inspect.cards``) and
        ``examples_missing``: why the examples' texts cannot be shown, None when they can.

    Raises:
        ArtifactError: it is no artifact, incomplete, or damaged where it was read.
    """
    path = artifact_path(path)
    kind = find_kind(path)
    header = artifacts.read_header(path, kind)
    found = {
        "path": str(path),
        "kind": kind,
        "format_version": header.format_version,
        "created_by": header.created_by,
        "key": header.key,
        "origin": origin(path, header),
        "params": header.params,
        "stats": header.stats,
        **header.extra,
        "rows": _FIRST[kind](path, rows),
    }
    if kind == "clusters":
        found["clusters"], found["examples_missing"] = cards(Clusters.open(path), examples)
    return found


def _signatures(path: Path, rows: int) -> list[dict[str, Any]]:
    source = signatures.Signatures.open(path)
    part = slice(0, min(rows, source.rows))
    columns = {name: source.column(name, part) for name in _COLUMNS}
    vector = source.column("signature", part)[:, :_SHOWN_DIMS].astype(float).round(4)
    return [
        {
            "row": row,
            "id": columns["example_id"][row].tobytes().hex(),
            "status": signatures.STATUS_NAMES[columns["status"][row]],
            "norm": _number(columns["norm"][row]),
            "loss": _number(columns["loss"][row]),
            "prompt_tokens": int(columns["prompt_tokens"][row]),
            "response_tokens": int(columns["response_tokens"][row]),
            "signature": vector[row].tolist(),
        }
        for row in range(part.stop)
    ]


_COLUMNS = ("example_id", "status", "norm", "loss", "prompt_tokens", "response_tokens")


def _clusters(path: Path, rows: int) -> list[dict[str, Any]]:
    source = Clusters.open(path)
    similarity, ids = source.column("similarity"), source.column("example_id")
    return [
        {
            "row": row,
            "id": ids[row].tobytes().hex(),
            "cluster": int(source.label[row]),
            "similarity": _number(similarity[row]),
        }
        for row in range(min(rows, source.rows))
    ]


def _selection(path: Path, rows: int) -> list[dict[str, Any]]:
    chosen = selection.read_selection(path)
    ids = selection.hex_ids(chosen.id[:rows])
    return [
        {
            "row": int(chosen.row[i]),
            "id": ids[i],
            "cluster": int(chosen.cluster[i]),
            "weight": float(chosen.weight[i]),
            "similarity": _number(chosen.similarity[i]),
            "tokens": int(chosen.tokens[i]),
        }
        for i in range(len(ids))
    ]


def _allocation(path: Path, rows: int) -> list[dict[str, Any]]:
    """The first micro-batches of every rank, side by side."""
    opened = allocation.Allocation.open(path)
    return [
        {"rank": rank, **{name: getattr(batch, name) for name in _BATCH}}
        for rank in range(min(opened.ranks, 8))
        for batch in itertools.islice(opened.rank(rank), max(1, rows // min(opened.ranks, 8)))
    ]


_BATCH = ("epoch", "step", "micro", "rows", "weights", "clusters", "tokens")


def _run(path: Path, rows: int) -> list[dict[str, Any]]:
    """The first lines of the metrics, and the last."""
    lines = list(runs.read_metrics(path))
    return lines if len(lines) <= rows else [*lines[: rows - 1], lines[-1]]


_FIRST = {
    "signatures": _signatures,
    "clusters": _clusters,
    "selection": _selection,
    "allocation": _allocation,
    "run": _run,
}


def _number(value: np.floating[Any]) -> float | None:
    """Rounded; None where there is no number, since JSON has no NaN."""
    return round(float(value), 4) if np.isfinite(value) else None


def as_lines(value: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """A nested object as (dotted name, text) pairs; lists and empty objects stay JSON."""
    lines: list[tuple[str, str]] = []
    for name, item in value.items():
        if isinstance(item, dict) and item:
            lines += as_lines(item, f"{prefix}{name}.")
        else:
            text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
            lines.append((prefix + name, text if len(text) <= 100 else text[:97] + "..."))
    return lines
