"""The inspect stage: one artifact as a JSON object for people and programs."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from formats import allocation, artifacts, runs, selection, signatures
from formats.clusters import Clusters
from formats.comparison import Comparison
from formats.errors import SettingError
from formats.evaluation import Evaluation
from formats.kinds import artifact_path, find_kind
from stages.inspect.cards import cards
from stages.inspect.origin import origin
from stages.inspect.plot import plot

ROWS = 5
_SHOWN_DIMS = 4
_LONG = ("examples", "trials")  # one entry per row or training: the first of them stand in ``rows``


def inspect(
    path: Path,
    *,
    rows: int = ROWS,
    examples: int = 3,
    by: str | None = None,
    picture: Path | None = None,
) -> dict[str, Any]:
    """Everything worth knowing about an artifact, from its header and its first rows.

    Args:
        path: of any artifact, or of its header file.
        rows: how many first rows.
        examples: how many typical and how many unusual examples of each cluster.
        by: of a cluster map, the column of the data to count in each cluster; by default the first
            that looks like a source (see ``stages.inspect.mix``).
        picture: of a cluster map, where to draw it (see ``stages.inspect.plot``).

    Returns:
        ``path``, ``kind``, the header's fields, ``origin`` (see ``stages.inspect.origin``), ``rows``
        (the first ones), and of a cluster map ``clusters``, ``mixed_by`` and ``examples_missing``
        (see ``stages.inspect.cards``).

    Raises:
        ArtifactError: it is no artifact, incomplete, or damaged where it was read.
        SettingError: ``by`` or ``picture`` for something that is no cluster map; no row has the
            column; matplotlib is missing, or does not know the picture's ending.
        DataError: ``by`` is given, but the data are not there.
    """
    path = artifact_path(path)
    kind = find_kind(path)
    for flag, value in (("--by", by), ("--plot", picture)):
        if value is not None and kind != "clusters":
            raise SettingError(f"{path} is of the kind {kind}: {flag} is for cluster maps")
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
        **{name: value for name, value in header.extra.items() if name not in _LONG},
        "rows": _FIRST[kind](path, rows),
    }
    if kind == "clusters":
        source = Clusters.open(path)
        if picture is not None:
            plot(source, picture)
        found |= cards(source, examples, by)
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


def _evaluation(path: Path, rows: int) -> list[dict[str, Any]]:
    columns = Evaluation.open(path).examples
    names = [name for name in columns if name != "groups"]
    groups = columns.get("groups", {})
    return [
        {name: columns[name][i] for name in names} | {name: groups[name][i] for name in groups}
        for i in range(min(rows, len(columns["row"])))
    ]


def _comparison(path: Path, rows: int) -> list[dict[str, Any]]:
    metric = artifacts.read_header(path, "comparison").params["metric"]
    shown = ("arm", "rows", "training_tokens", "training_seconds", "selecting_seconds")
    return [
        {name: arm[name] for name in shown} | {metric: arm["quality"][metric]["mean"]}
        for arm in Comparison.open(path).arms[:rows]
    ]


_FIRST = {
    "signatures": _signatures,
    "clusters": _clusters,
    "selection": _selection,
    "allocation": _allocation,
    "run": _run,
    "evaluation": _evaluation,
    "comparison": _comparison,
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
