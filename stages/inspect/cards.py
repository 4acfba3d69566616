"""One card per cluster: how large it is, and what its typical and its unusual examples look like."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from formats.clusters import Clusters
from formats.errors import ClusterCliError, DataError
from stages.inspect.mix import Mix, find_mix

WIDTH = 100  # characters of an example's one line


def cards(source: Clusters, examples: int = 3, by: str | None = None) -> dict[str, Any]:
    """A card for every cluster.

    Args:
        source: the map.
        examples: how many typical and how many unusual ones.
        by: column of the data whose values are counted; the first that looks like a source if None.

    Returns:
        ``examples_missing``: why examples have no text, None when they have; ``mixed_by``: the column
        that was counted, None without one; and ``clusters``: for each ``cluster``, ``size``, ``share``
        (of the clustered rows), ``tokens``, ``mean_similarity``, ``mean_loss`` (over its distinct
        examples), ``typical`` and ``unusual``: ``{"row", "similarity", "text"}``, the most and the
        least similar to the centroid, and ``mix``, see ``stages.inspect.mix``.

    Raises:
        SettingError: no row has the column ``by``.
        DataError: ``by`` is given, but the data are not there.
    """
    similarity, loss = source.column("similarity"), source.column("loss")
    tokens, total = source.column("tokens"), max(1, int(source.size.sum()))
    chosen = _extremes(source, similarity, examples)
    rows = {row for pair in chosen for part in pair for row in part}
    texts, mix, missing = _look_up(source, rows, by)
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
                "mix": mix.of(cluster) if mix else [],
            }
        )
    return {"clusters": made, "examples_missing": missing, "mixed_by": mix.by if mix else None}


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


def _look_up(
    source: Clusters, rows: set[int], by: str | None
) -> tuple[dict[int, str], Mix | None, str | None]:
    """Texts of the rows, the mix of sources, and why there are none."""
    from formats.data import open_reference

    try:
        with open_reference(source.header.dataset, source.path.parent) as dataset:
            texts = {row: one_line(dataset[row].messages) for row in sorted(rows)}
            return texts, find_mix(source, dataset, by), None
    except ClusterCliError as error:
        if by:
            raise
        return {}, None, error.problem
    except (KeyError, IndexError):
        problem = f"{source.path} does not say where its data are"
    if by:
        raise DataError(f"the column {by!r} cannot be counted: {problem}", fix="leave --by out")
    return {}, None, problem


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
