"""The allocate stage: selection in, one file of micro-batches per rank out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from formats import allocation, artifacts
from formats.artifacts import Header
from formats.errors import ArtifactError, SettingError
from formats.selection import Selection, content_hash, hex_ids, read_selection
from stages.allocate.report import figures, in_signature_space
from stages.allocate.shape import EMPTY, Shape
from stages.allocate.strategies import plan, shuffled
from stages.allocate.vectors import load
from stages.reporting import Reporter, Silent

STAGE_VERSION = 1
MOST_RANKS = 4096
_UNITS_AT_ONCE = 20_000  # micro-batches turned into Python lists together


def allocate(
    selection: Path,
    output: Path,
    *,
    ranks: int,
    strategy: str = "disjoint",
    micro_batch: int = 1,
    accumulation: int = 1,
    epochs: int = 1,
    seed: int = 0,
    rotate: bool = False,
    signatures: Path | None = None,
    force: bool = False,
    reporter: Reporter = Silent(),
) -> Header:
    """Plans which rank takes which example at which step, for the whole run.

    Every example is taken exactly once per epoch, and every rank has the same number of micro-batches.
    The order is another one in each epoch.

    Args:
        selection: a ``selection.jsonl``.
        output: the folder to write.
        ranks: data-parallel workers, 1 to 4096.
        strategy: one of ``stages.allocate.strategies.STRATEGIES``.
        micro_batch: rows a rank takes through the model at once.
        accumulation: micro-batches per optimizer step.
        epochs: passes over the selection.
        seed: other seeds, other plans.
        rotate: move clusters on to the next rank from epoch to epoch.
        signatures: the ``signatures.zarr`` behind the selection. With it the plan is also measured in
            signature space; ``balanced`` finds it by itself unless it was moved.
        force: do it again even when the output is up to date.
        reporter: where messages go.

    Returns:
        The manifest. ``stats["plan"]`` and ``stats["random"]`` hold the figures of
        ``stages.allocate.report`` for the first epoch and for the usual shuffle of the same examples.

    Raises:
        SettingError: a number is out of range, or there is no such strategy.
        ArtifactError: the selection cannot be read, or is empty.
        OutputBusyError: another process is writing the output.
    """
    selection, output = Path(selection), Path(output)
    _check(ranks, micro_batch, accumulation, epochs)
    source = artifacts.read_header(selection, "selection")
    content = [source.key, content_hash(selection)]
    params, key = expected(
        content,
        ranks=ranks,
        strategy=strategy,
        micro_batch=micro_batch,
        accumulation=accumulation,
        epochs=epochs,
        seed=seed,
        rotate=rotate,
        measured=signatures is not None,
    )
    with artifacts.locked(output):
        if not force and (fresh := artifacts.fresh_header(output, "allocation", key)):
            artifacts.touch(output, "allocation")
            reporter.message(f"{output} is up to date")
            return fresh
        chosen = read_selection(selection)
        if not len(chosen):
            raise ArtifactError(f"{selection} holds no example: nothing to allocate")
        shape = Shape(len(chosen), ranks, micro_batch, accumulation)
        known = load(chosen, signatures) if signatures or strategy == "balanced" else None
        plans = plan(
            chosen, shape, strategy, epochs=epochs, seed=seed, rotate=rotate, vectors=known
        )
        grids = list(plans)
        stats = _stats(chosen, shape, grids[0], seed, known)
        _report(stats, shape, strategy, reporter)
        files = _write(output, chosen, grids, reporter)
        header = _header(chosen, output, key, params, stats, shape, content[1])
        header.extra["files"] = files
        artifacts.write_json(artifacts.partial(output) / "manifest.json", header.to_json())
        artifacts.commit(output)
    return header


def expected(
    content: list[str],
    *,
    ranks: int,
    strategy: str = "disjoint",
    micro_batch: int = 1,
    accumulation: int = 1,
    epochs: int = 1,
    seed: int = 0,
    rotate: bool = False,
    measured: bool = False,
) -> tuple[dict[str, Any], str]:
    """The parameters and the key of the plan ``allocate`` would write, without reading anything.

    Args:
        content: the selection's key and the hash of its lines (``formats.selection.content_hash``).
        ranks, strategy, micro_batch, accumulation, epochs, seed, rotate: as in ``allocate``.
        measured: whether ``signatures`` is given.

    Raises:
        SettingError: a number is out of range.
    """
    _check(ranks, micro_batch, accumulation, epochs)
    params = {
        "strategy": strategy,
        "ranks": ranks,
        "micro_batch": micro_batch,
        "accumulation": accumulation,
        "epochs": epochs,
        "seed": seed,
        "rotate": rotate,
    }
    if measured:
        params["measured"] = True
    return params, artifacts.stage_key("allocate", STAGE_VERSION, params=params, inputs=content)


def _check(ranks: int, micro_batch: int, accumulation: int, epochs: int) -> None:
    if not 1 <= ranks <= MOST_RANKS:
        raise SettingError(f"--ranks is {ranks}", fix=f"give a number from 1 to {MOST_RANKS}")
    numbers = {"micro-batch": micro_batch, "accumulation": accumulation, "epochs": epochs}
    for name, value in numbers.items():
        if value < 1:
            raise SettingError(f"--{name} is {value}", fix="give a positive number")


def _write(
    output: Path, chosen: Selection, grids: list[np.ndarray], reporter: Reporter
) -> list[dict[str, Any]]:
    """Every rank's file in ``<output>.partial``; their entries for the manifest."""
    folder = artifacts.fresh_partial(output)
    ranks = grids[0].shape[2]
    files = []
    with reporter.progress("allocate", ranks, "ranks") as advance:
        for rank in range(ranks):
            files.append(allocation.write_rank(folder, rank, _lines(chosen, grids, rank)))
            advance(1)
    return files


def _lines(chosen: Selection, grids: list[np.ndarray], rank: int) -> Iterator[str]:
    for epoch, grid in enumerate(grids):
        steps, accumulation, _, micro_batch = grid.shape
        units = np.ascontiguousarray(grid[:, :, rank, :]).reshape(-1, micro_batch)
        for start in range(0, len(units), _UNITS_AT_ONCE):
            part = units[start : start + _UNITS_AT_ONCE]
            for index, columns in enumerate(_columns(chosen, part), start):
                step, micro = divmod(index, accumulation)
                yield allocation.line((epoch, epoch * steps + step, micro), *columns)


def _columns(chosen: Selection, units: np.ndarray) -> Iterator[tuple[list[Any], ...]]:
    """For each micro-batch its rows, ids, weights, clusters and tokens."""
    filled = units != EMPTY
    examples = units[filled]
    columns = (
        chosen.row[examples].tolist(),
        hex_ids(chosen.id[examples]),
        chosen.weight[examples].tolist(),
        chosen.cluster[examples].tolist(),
        chosen.tokens[examples].tolist(),
    )
    end = 0
    for count in filled.sum(axis=1).tolist():
        start, end = end, end + count
        yield tuple(column[start:end] for column in columns)


def _stats(
    chosen: Selection, shape: Shape, grid: np.ndarray, seed: int, known: np.ndarray | None
) -> dict[str, Any]:
    by_chance = shuffled(shape, np.random.default_rng([seed, 2]))
    found = {
        name: figures(some, chosen.cluster, chosen.tokens)
        for name, some in (("plan", grid), ("random", by_chance))
    }
    if known is not None:
        found["plan"] |= in_signature_space(grid, known, chosen.weight)
        found["random"] |= in_signature_space(by_chance, known, chosen.weight)
    return {
        "examples": shape.examples,
        "clusters": len(np.unique(chosen.cluster)),
        **_ownership(grid, chosen.cluster),
        "steps": shape.steps,
        "empty_places": shape.steps * shape.batch - shape.examples,
        **found,
    }


def _ownership(grid: np.ndarray, cluster: np.ndarray) -> dict[str, Any]:
    """Clusters that more than one rank holds, and the share of examples away from their main rank."""
    ranks = grid.shape[2]
    filled = grid != EMPTY
    rank = np.broadcast_to(np.arange(ranks)[:, None], grid.shape)[filled]
    pairs, rows = np.unique(
        cluster[grid[filled]].astype(np.int64) * ranks + rank, return_counts=True
    )
    _, first, owners = np.unique(pairs // ranks, return_index=True, return_counts=True)
    at_home = np.maximum.reduceat(rows, first).sum()
    return {
        "split_clusters": int((owners > 1).sum()),
        "away": round(1 - float(at_home / rows.sum()), 6),
    }


def _report(stats: dict[str, Any], shape: Shape, strategy: str, reporter: Reporter) -> None:
    ours, chance = stats["plan"], stats["random"]
    reporter.message(
        f"{shape.examples:,} examples over {shape.ranks} ranks: {shape.steps:,} steps of "
        f"{shape.batch} an epoch"
    )
    if strategy == "disjoint" and shape.ranks > stats["clusters"]:
        reporter.warn(
            f"{shape.ranks} ranks share {stats['clusters']} clusters: {stats['split_clusters']} are "
            "split, and ranks meet on the same cluster"
        )
    for name, title in (
        ("shared_cluster", "two ranks on one cluster in a step"),
        ("padded_ratio_mean", "tokens of the fullest rank over the mean"),
        ("waiting", "predicted waiting"),
        ("clusters_per_batch", "clusters in a step"),
        ("rank_cosine", "cosine between ranks in a step"),
        ("batch_variance", "variance of a batch's mean signature"),
    ):
        if name not in ours:
            continue
        number = "{:.2f}" if name == "clusters_per_batch" else "{:.4f}"
        reporter.message(
            f"{title}: {number.format(ours[name])} (random: {number.format(chance[name])})"
        )


def _header(
    chosen: Selection,
    output: Path,
    key: str,
    params: dict[str, Any],
    stats: dict[str, Any],
    shape: Shape,
    content: str,
) -> Header:
    path, folder, extra = chosen.path, output.parent, chosen.header.extra
    return Header(
        kind="allocation",
        key=key,
        params=params,
        inputs=[{"path": os.path.relpath(path, folder), "sha256": content, "rows": len(chosen)}],
        stats=stats,
        dataset=artifacts.rebase_dataset(chosen.header.dataset, path.parent, folder),
        extra={
            "ranks": shape.ranks,
            "micro_batch": shape.micro_batch,
            "accumulation": shape.accumulation,
            "epochs": params["epochs"],
            "steps_per_epoch": shape.steps,
            **{name: extra[name] for name in ("space", "space_id", "rendering") if name in extra},
        },
    )
