"""One card per cluster: how large it is, and what its typical and its unusual examples look like."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from formats.clusters import Clusters
from formats.errors import ClusterCliError

WIDTH = 100  # characters of an example's one line


def cards(source: Clusters, examples: int = 3) -> tuple[list[dict[str, Any]], str | None]:
    """A card for every cluster, and why examples have no text (None when they have).

    Returns:
        for each cluster ``cluster``, ``size``, ``share`` (of the clustered rows), ``tokens``,
        ``mean_similarity``, ``mean_loss`` (over its distinct examples), ``typical`` and ``unusual``:
        ``{"row", "similarity", "text"}``, the most and the least similar to the centroid.
    """
    similarity, loss = source.column("similarity"), source.column("loss")
    tokens, total = source.column("tokens"), max(1, int(source.size.sum()))
    chosen = _extremes(source, similarity, examples)
    rows = {row for pair in chosen for part in pair for row in part}
    texts, missing = _texts(source, rows)
    made = []
    for cluster, (typical, unusual) in enumerate(chosen):
        members = (source.label == cluster) & source.distinct
        made.append(
            {
                "cluster": cluster,
                "size": int(source.size[cluster]),
                "share": round(float(source.size[cluster] / total), 6),
                "tokens": int(tokens[cluster]),
                "mean_similarity": _mean(similarity[source.label == cluster]),
                "mean_loss": _mean(loss[members]),
                "typical": [_example(row, similarity, texts) for row in typical],
                "unusual": [_example(row, similarity, texts) for row in unusual],
            }
        )
    return made, missing


def _mean(values: np.ndarray) -> float | None:
    return round(float(values.mean(dtype=np.float64)), 6) if len(values) else None


def _extremes(
    source: Clusters, similarity: np.ndarray, examples: int
) -> list[tuple[list[int], list[int]]]:
    """Of every cluster the rows nearest to the centroid and the farthest ones; never one in both."""
    rows = np.flatnonzero(source.distinct)
    order = rows[np.lexsort((rows, -similarity[rows], source.label[rows]))]
    starts = np.searchsorted(source.label[order], np.arange(source.clusters + 1))
    found = []
    for start, end in itertools.pairwise(starts):
        members = order[start:end].tolist()
        near = members[: min(examples, (len(members) + 1) // 2)]
        far = members[len(near) :][::-1][:examples]
        found.append((near, far))
    return found


def _example(row: int, similarity: np.ndarray, texts: dict[int, str]) -> dict[str, Any]:
    return {"row": row, "similarity": round(float(similarity[row]), 4), "text": texts.get(row)}


def _texts(source: Clusters, rows: set[int]) -> tuple[dict[int, str], str | None]:
    from formats.data import open_reference

    try:
        with open_reference(source.header.dataset, source.path.parent) as dataset:
            return {row: one_line(dataset[row].messages) for row in sorted(rows)}, None
    except ClusterCliError as error:
        return {}, error.problem
    except (KeyError, IndexError):
        return {}, f"{source.path} does not say where its data are"


def one_line(messages: list[dict[str, Any]]) -> str:
    """The last question and its answer on one line, both cut: ``question => answer``."""
    said = [(m["role"], " ".join(str(m.get("content") or "").split())) for m in messages]
    answers = [text for role, text in said if role in ("assistant", "text")]
    questions = [text for role, text in said if role == "user"]
    if not questions:
        return _cut(answers[-1] if answers else "", WIDTH)
    answer = _cut(answers[-1], WIDTH // 2 - 4) if answers else ""
    return f"{_cut(questions[-1], WIDTH - 4 - len(answer))} => {answer}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
