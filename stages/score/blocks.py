"""Scoring block by block: what is done stays done, whoever computes the rest.

The ``status`` array is written last for a block and starts as ``PENDING``, so a block is done exactly
when none of its rows is pending. Batches are formed inside a block: their composition, and so every bit
of the result, does not depend on which process computes the block.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from formats import artifacts, blocks
from formats.data import Dataset
from formats.errors import ArtifactError
from formats.rendering import Rendered, Renderer
from formats.signatures import DUPLICATE, NONFINITE, OK, STATUS_NAMES, TRUNCATED, create
from stages import models
from stages.reporting import Reporter
from stages.score.batches import Signer, sign_rows

PENDING = 255


def default_block_rows(rows: int) -> int:
    """A power of two near 1/64 of the rows, between 16 and 4,096 (32 MiB of signatures at D = 4,096).

    A killed run loses less than one block, so small data sets get small blocks.
    """
    target = max(1, rows // 64)
    return min(4096, max(16, 1 << (target.bit_length() - 1)))


def write_blocks(
    dataset: Dataset,
    tokenizer: Any,
    load: Callable[[Any], Any],
    output: Path,
    *,
    key: str,
    settings: Any,
    batch_tokens: int | None,
    block_rows: int | None,
    force: bool,
    reporter: Reporter,
) -> dict[str, Any]:
    """Fills ``<output>.partial`` with all blocks, going on where a killed run stopped.

    Args:
        dataset: the examples.
        tokenizer: of the model.
        load: loads the model in a given torch dtype; called only when something is left to do.
        output: the final place of the artifact.
        key: of the result; a partial output with another key is refused unless ``force``.
        settings: ``ScoreSettings``.
        batch_tokens, block_rows, force, reporter: as in ``score``.

    Returns:
        Statistics for the header.

    Raises:
        ArtifactError: a half-done output has another key.
    """
    rows = len(dataset)
    size = block_rows or default_block_rows(rows)
    group = _open_partial(output, rows, settings, size, key, force)
    first = first_occurrence(dataset.ids)
    renderer = Renderer(
        tokenizer, max_length=settings.max_length, chat_template=settings.chat_template
    )
    size = int(group["status"].chunks[0])
    todo = [
        slice(start, min(start + size, rows))
        for start in range(0, rows, size)
        if (group["status"][start : start + size] == PENDING).any()
    ]
    done = rows - sum(part.stop - part.start for part in todo)
    if done:
        reporter.message(f"resuming: {done:,} of {rows:,} rows were scored before")
    if todo:
        signer, device = _load_signer(load, settings)
        budget = batch_tokens or (16_384 if device.startswith("cuda") else 4_096)
        with reporter.progress("score", rows) as advance:
            advance(done)
            for part in todo:
                rendered = [renderer(dataset[row]) for row in range(part.start, part.stop)]
                _write_block(group, dataset, part, rendered, first, signer, device, budget)
                advance(part.stop - part.start)
    _copy_duplicates(group, first)
    return statistics(group)


def first_occurrence(ids: np.ndarray) -> np.ndarray:
    """For every row the first row with the same id: (N, 16) uint8 to (N,) int64."""
    whole = np.ascontiguousarray(ids).view("V16").ravel()
    _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
    return first[inverse]


def _open_partial(
    output: Path, rows: int, settings: Any, block_rows: int, key: str, force: bool
) -> Any:
    import zarr

    path = artifacts.partial(output)
    if path.exists():
        try:
            group = zarr.open_group(path, mode="r+")
            bound = group.attrs.get("partial_key")
        except Exception:  # killed before the group stood: nothing in it is worth keeping
            group, bound = None, None
        if group is not None and bound == key:
            return group
        if bound is not None and not force:
            raise ArtifactError(
                f"{path} is half done with other data, model or settings",
                fix="run the old command to finish it, or add --force to start over",
            )
        shutil.rmtree(path)
    group = create(path, rows, settings.dims, block_rows)
    group["status"][:] = PENDING
    group.attrs["partial_key"] = key  # last: before this the folder counts as empty
    return group


def _load_signer(load: Callable[[Any], Any], settings: Any) -> tuple[Signer, str]:
    from stages.score.signers import GradientSigner, HeadSigner

    device = models.compute_device()
    model = load(models.resolve_dtype(settings.dtype, device)).to(device)
    shape = {"rank": settings.rank, "dims": settings.dims, "seed": settings.seed}
    if settings.kind == "head":
        return HeadSigner(model, **shape), device
    return GradientSigner(model, layers=settings.layers, **shape), device


def _write_block(
    group: Any,
    dataset: Dataset,
    part: slice,
    rendered: list[Rendered],
    first: np.ndarray,
    signer: Signer,
    device: str,
    budget: int,
) -> None:
    rows = np.arange(part.start, part.stop)
    status = np.array([example.status for example in rendered], np.uint8)
    status[first[part] != rows] = DUPLICATE
    wanted = np.flatnonzero((status == OK) | (status == TRUNCATED))
    signature = np.zeros((len(rows), group["signature"].shape[1]), np.float16)
    norm = np.full(len(rows), np.nan, np.float32)
    loss = np.full(len(rows), np.nan, np.float32)
    if len(wanted):
        raw, loss[wanted] = sign_rows([rendered[i] for i in wanted], signer, device, budget)
        norm[wanted] = np.linalg.norm(raw, axis=1)
        # A row whose gradient is infinite, undefined or exactly zero has no direction.
        good = np.isfinite(norm[wanted]) & (norm[wanted] > 0) & np.isfinite(loss[wanted])
        status[wanted[~good]] = NONFINITE
        signature[wanted[good]] = raw[good] / norm[wanted[good], None]
    group["signature"][part] = signature
    group["example_id"][part] = dataset.ids[part]
    group["norm"][part] = norm
    group["loss"][part] = loss
    group["prompt_tokens"][part] = [example.prompt_tokens for example in rendered]
    group["response_tokens"][part] = [example.response_tokens for example in rendered]
    group["status"][part] = status


def _copy_duplicates(group: Any, first: np.ndarray) -> None:
    """A repeated row has the loss and norm of its first occurrence; its signature stands there."""
    repeated = first != np.arange(len(first))
    if repeated.any():
        for name in ("norm", "loss"):
            values = np.asarray(group[name][:])
            values[repeated] = values[first[repeated]]
            group[name][:] = values


def statistics(group: Any) -> dict[str, Any]:
    """Counts and sums for the header, from the arrays alone."""
    status = blocks.read(group, "status")
    norm = blocks.read(group, "norm")
    tokens = blocks.read(group, "prompt_tokens") + blocks.read(group, "response_tokens")
    usable = np.isin(status, (OK, TRUNCATED))
    counts = np.bincount(status, minlength=len(STATUS_NAMES))
    median = float(np.median(norm[usable])) if usable.any() else 0.0
    return {
        "rows": len(status),
        "usable": int(usable.sum()),
        "status": {name: int(count) for name, count in zip(STATUS_NAMES, counts, strict=False)},
        "tokens": int(tokens.sum()),
        "scored_tokens": int(tokens[usable].sum()),
        "mean_loss": round(float(blocks.read(group, "loss")[usable].mean()), 4)
        if usable.any()
        else None,
        "median_norm": median,
        "large_norms": int((norm[usable] > 10 * median).sum()),
        "threads": torch.get_num_threads(),
    }
