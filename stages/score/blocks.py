"""Scoring block by block: what is done stays done, whoever computes the rest.

The ``status`` array is written last for a block and starts as ``PENDING``, so a block is done exactly
when none of its rows is pending. Batches are formed inside a block: their composition, and so every bit
of the result, does not depend on which process computes the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from formats import blocks
from formats.data import Dataset
from formats.rendering import Rendered
from formats.signatures import (
    DUPLICATE,
    NONFINITE,
    OK,
    PENDING,
    STATUS_NAMES,
    TRUNCATED,
    as_keys,
)
from stages import models
from stages.reporting import Reporter
from stages.score import loading
from stages.score.batches import Signer, sign_rows
from stages.score.reuse import Known
from stages.score.settings import Job
from stages.score.spent import Stopwatch


@dataclass(frozen=True)
class Share:
    """The blocks one process computes: number b belongs to rank b % world."""

    rank: int = 0
    world: int = 1

    def pending(self, group: Any) -> list[slice]:
        """This rank's blocks that are not done; the assignment comes before the skipping."""
        rows, size = group["status"].shape[0], group["status"].chunks[0]
        mine = range(self.rank * size, rows, self.world * size)
        parts = [slice(start, min(start + size, rows)) for start in mine]
        return [part for part in parts if (group["status"][part] == PENDING).any()]


def fill(
    group: Any,
    dataset: Dataset,
    job: Job,
    signing: Sequence[models.ModelFiles],
    *,
    known: Known,
    share: Share,
    reporter: Reporter,
) -> None:
    """Computes this share's pending blocks, each written as soon as it is done.

    Args:
        group: the open, half-done artifact.
        dataset: the examples.
        job: the settings.
        signing: the models; loaded only when a row must really be computed.
        known: results to copy instead.
        share: which blocks.
        reporter: hears progress and warnings.

    Raises:
        ModelError: a model cannot be loaded or hooked.
    """
    todo = share.pending(group)
    if not todo:
        return
    torch.set_num_threads(int(group.attrs["threads"]))
    work = _Work(job, dataset, signing, known, reporter)
    watch = Stopwatch(job.output)
    with reporter.progress("score", sum(part.stop - part.start for part in todo)) as advance:
        for part in todo:
            block = _Block(part, dataset.ids[part], group["signature"].shape[1])
            missing = block.copy_known(work)
            rendered = block.render(work, missing)
            if rendered:
                block.sign(rendered, work.signer(rendered))
            block.write(group)
            if share.rank == 0:
                watch.note()
            advance(part.stop - part.start, f"{work.reused:,} reused" if work.reused else "")


class _Work:
    """What all blocks share: how to render, what is known, and the signer, made when first needed."""

    def __init__(
        self,
        job: Job,
        dataset: Dataset,
        signing: Sequence[models.ModelFiles],
        known: Known,
        reporter: Reporter,
    ) -> None:
        self.job, self.dataset, self.signing = job, dataset, signing
        self.known, self.reporter = known, reporter
        self.first = first_occurrence(dataset.ids)
        self.reused = 0
        self.renderer = loading.renderer(job, signing[-1])
        # With a proxy the tokens that training will see are those of the other model.
        other = job.counting()
        same = other.tokenizer_sha256 == signing[-1].tokenizer_sha256
        self.counter = None if same else loading.renderer(job, other)
        self._signer: Signer | None = None

    def signer(self, rendered: dict[int, Rendered]) -> Signer:
        """The signer; its first batch is also what it is tested on."""
        if self._signer is None:
            self._signer = loading.signer(self.job, self.signing, self.reporter)
            loading.check_invariance(self._signer, list(rendered.values()), self.reporter)
        return self._signer


class _Block:
    """One block of rows in memory: a column for each array of the artifact."""

    def __init__(self, part: slice, ids: np.ndarray, dims: int) -> None:
        rows = part.stop - part.start
        self.part = part
        self.columns = {
            "signature": np.zeros((rows, dims), np.float16),
            "example_id": ids,
            "norm": np.full(rows, np.nan, np.float32),
            "loss": np.full(rows, np.nan, np.float32),
            "prompt_tokens": np.zeros(rows, np.int32),
            "response_tokens": np.zeros(rows, np.int32),
            "status": np.zeros(rows, np.uint8),
        }

    def copy_known(self, work: _Work) -> np.ndarray:
        """Copies the rows whose result is known; returns the others, (n,) within the block."""
        places = work.known.find(self.columns["example_id"])
        found = np.flatnonzero(places >= 0)
        if len(found):
            for name, values in work.known.read(places[found]).items():
                self.columns[name][found] = values
            work.reused += len(found)
        repeated = work.first[self.part] != np.arange(self.part.start, self.part.stop)
        self.columns["signature"][repeated] = 0
        self.columns["status"][repeated] = DUPLICATE
        return np.flatnonzero(places < 0)

    def render(self, work: _Work, rows: np.ndarray) -> dict[int, Rendered]:
        """Renders rows of the block, notes their tokens and status, and returns those to sign."""
        wanted = {}
        missing = set(rows.tolist())
        # Counts by another tokenizer are no part of a signature and are never copied.
        for i in range(len(self.columns["status"])) if work.counter else sorted(missing):
            example = work.dataset[self.part.start + i]
            row = work.renderer(example) if i in missing else None
            counted = work.counter(example) if work.counter else row
            assert counted is not None
            self.columns["prompt_tokens"][i] = counted.prompt_tokens
            self.columns["response_tokens"][i] = counted.response_tokens
            if row is None or self.columns["status"][i] == DUPLICATE:
                continue
            self.columns["status"][i] = max(row.status, counted.status)
            if self.columns["status"][i] in (OK, TRUNCATED):
                wanted[i] = row
        return wanted

    def sign(self, rendered: dict[int, Rendered], signer: Signer) -> None:
        """Computes signatures, norms and losses of the rendered rows."""
        rows = np.array(list(rendered))
        raw, loss = sign_rows(list(rendered.values()), signer)
        norm = np.linalg.norm(raw, axis=1)
        # A row whose gradient is infinite, undefined or exactly zero has no direction.
        good = np.isfinite(norm) & (norm > 0) & np.isfinite(loss)
        self.columns["norm"][rows], self.columns["loss"][rows] = norm, loss
        self.columns["status"][rows[~good]] = NONFINITE
        self.columns["signature"][rows[good]] = raw[good] / norm[good, None]

    def write(self, group: Any) -> None:
        """Writes the block, its status last: that marks it as done."""
        for name, values in self.columns.items():  # status stands last in the dictionary
            group[name][self.part] = values


def first_occurrence(ids: np.ndarray) -> np.ndarray:
    """For every row the first row with the same id: (N, 16) uint8 to (N,) int64."""
    _, first, inverse = np.unique(as_keys(ids), return_index=True, return_inverse=True)
    return first[inverse]


def copy_duplicates(group: Any, ids: np.ndarray) -> None:
    """A repeated row has the loss and norm of its first occurrence; its signature stands there."""
    first = first_occurrence(ids)
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
    }
