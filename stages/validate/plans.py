"""Checks of the two JSONL artifacts: a selection, and the allocation made from one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from formats import allocation as plans
from formats import artifacts
from formats import selection as selections
from formats.artifacts import Header
from formats.clusters import Clusters
from formats.errors import ArtifactError, ArtifactMissingError
from formats.places import join

_EXACT = 1e-9


def selection(path: Path) -> str:
    """Checks a ``selection.jsonl``, and its rows against its cluster map where that is still there.

    Raises:
        ArtifactError: see ``stages.validate.validate``.
    """
    chosen = selections.read_selection(path)  # lines, ascending rows, weights above 0, the count
    if not len(chosen):
        raise ArtifactError(f"{path} holds no example")
    mean = float(chosen.weight.mean())
    if abs(mean - 1) > _EXACT:
        raise ArtifactError(f"{path}: the weights average {mean:.9f}, not 1")
    tokens = int(chosen.tokens.sum(dtype=np.int64))
    if tokens != chosen.header.stats.get("tokens", tokens):
        raise ArtifactError(
            f"{path}: the examples have {tokens:,} tokens, the header says "
            f"{chosen.header.stats['tokens']:,}"
        )
    against = _against_map(path, chosen)
    return f"{len(chosen):,} examples{against}"


def _against_map(path: Path, chosen: selections.Selection) -> str:
    source = _input(path, chosen.header)
    try:
        clusters = Clusters.open(source)
    except ArtifactMissingError:
        return f"; {source} is not there to compare with"
    if clusters.header.key != chosen.header.inputs[0]["sha256"]:
        return f"; {source} is another one now"
    row = chosen.row
    if row[-1] >= clusters.rows:
        raise ArtifactError(f"{path}: row {row[-1]} is beyond the {clusters.rows} of {source}")
    wrong = clusters.label[row] != chosen.cluster
    wrong |= (clusters.column("example_id")[row] != chosen.id).any(axis=1)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise ArtifactError(
            f"{path}:{at + 2}: cluster or id is not that of row {row[at]} in {source}"
        )
    return f", as in {source}"


def _input(path: Path, header: Header) -> Path:
    return join(path.parent, header.inputs[0]["path"])


def allocation(path: Path) -> str:
    """Checks an ``allocation/``: checksums, lines, and every selected row exactly once per epoch.

    Raises:
        ArtifactError: see ``stages.validate.validate``.
    """
    opened = plans.Allocation.open(path)
    counts = [Counter[int]() for _ in range(opened.epochs)]
    examples: dict[int, tuple[str, float, int, int]] = {}
    for rank in range(opened.ranks):
        file = path / plans.rank_file(rank)
        for batch in opened.rank(rank):  # the file's checksum, and the place of every line
            counts[batch.epoch].update(batch.rows)
            facts = zip(batch.ids, batch.weights, batch.clusters, batch.tokens, strict=True)
            for row, fact in zip(batch.rows, facts, strict=True):
                if examples.setdefault(row, fact) != fact:
                    raise ArtifactError(f"{file}: row {row} differs from one place to another")
    files = {path / plans.rank_file(rank) for rank in range(opened.ranks)}
    stray = sorted(set(path.glob("rank-*.jsonl")) - files)
    if stray:
        raise ArtifactError(f"{stray[0]} belongs to no rank of {opened.ranks}")
    for epoch, count in enumerate(counts):
        _check_epoch(path, epoch, count, set(examples))
    against = _against_selection(path, opened.header, examples)
    return (
        f"{len(examples):,} examples once in each of {opened.epochs} epochs "
        f"over {opened.ranks} ranks{against}"
    )


def _check_epoch(path: Path, epoch: int, count: Counter[int], rows: set[int]) -> None:
    for row in sorted(rows):
        if count[row] != 1:
            raise ArtifactError(
                f"{path}: row {row} stands {count[row]} times in epoch {epoch}, not once"
            )


def _against_selection(
    path: Path, header: Header, examples: dict[int, tuple[str, float, int, int]]
) -> str:
    source = _input(path, header)
    try:
        artifacts.read_header(source, "selection")
    except ArtifactMissingError:
        return f"; {source} is not there to compare with"
    if selections.content_hash(source) != header.inputs[0]["sha256"]:
        return f"; {source} is another one now"
    chosen = selections.read_selection(source)
    columns = (chosen.weight, chosen.cluster, chosen.tokens)
    facts = zip(selections.hex_ids(chosen.id), *(c.tolist() for c in columns), strict=True)
    wanted = dict(zip(chosen.row.tolist(), facts, strict=True))
    for row in sorted(wanted.keys() | examples.keys()):
        if wanted.get(row) != examples.get(row):
            where = "missing" if row not in examples else "not as"
            raise ArtifactError(f"{path}: row {row} is {where} in {source}")
    return f", as in {source}"
