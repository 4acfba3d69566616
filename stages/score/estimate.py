"""What would scoring cost? Rows, tokens, FLOPs, bytes on disk, and the time, from a short probe."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from formats.data import Dataset
from formats.rendering import OK, TRUNCATED, Rendered
from stages.reporting import Reporter
from stages.score import loading
from stages.score.batches import pad
from stages.score.blocks import first_occurrence
from stages.score.reuse import Known
from stages.score.settings import Job

PROBE_BATCHES = 3
_PROBE_ROWS = 256  # rendered to find typical lengths


def estimate(
    job: Job, dataset: Dataset, target: Any, known: Known, reporter: Reporter
) -> dict[str, Any]:
    """Figures for a dry run; nothing is written.

    Args:
        job, dataset, target: as ``score`` works them out.
        known: results that would be copied.
        reporter: hears warnings.

    Returns:
        rows, rows to compute, tokens (estimated from a sample when there are many rows), FLOPs, bytes
        on disk, seconds, and the tokens per second that were measured.

    Raises:
        ModelError: the model cannot be loaded.
    """
    distinct = first_occurrence(dataset.ids) == np.arange(len(dataset))
    compute = np.flatnonzero(distinct & (known.find(dataset.ids) < 0))
    sample = _sample(job, dataset, target, compute)
    dims = loading.dims(job, target.signing)
    lengths = [len(row.input_ids) for row in sample]
    tokens = int(np.mean(lengths) * len(compute)) if sample else 0
    report: dict[str, Any] = {
        "rows": len(dataset),
        "reused_or_repeated": int(len(dataset) - len(compute)),
        "compute": len(compute),
        "tokens": tokens,
        "bytes": len(dataset) * (2 * dims + 16 + 4 * 4 + 1),
        "flops": 0,
        "tokens_per_second": None,
        "seconds": 0.0,
    }
    if sample:
        signer = loading.signer(job, target.signing, reporter)
        speed = _probe(signer, sample)
        report |= {"tokens_per_second": round(speed, 1), "seconds": round(tokens / speed, 1)}
        report["flops"] = tokens * _flops_per_token(signer.sign)
    return report


def _sample(job: Job, dataset: Dataset, target: Any, compute: np.ndarray) -> list[Rendered]:
    render = loading.renderer(job, target.signing[-1])
    rng = np.random.default_rng(0)
    chosen = rng.permutation(compute)[:_PROBE_ROWS]
    rows = (render(dataset[int(row)]) for row in np.sort(chosen))
    return [row for row in rows if row.status in (OK, TRUNCATED)]


def _probe(signer: Any, sample: list[Rendered]) -> float:
    """Tokens per second over three batches of typical rows, after one to warm up."""
    ordered = sorted(sample, key=lambda row: len(row.input_ids))
    places = np.linspace(0, len(ordered) - 1, PROBE_BATCHES + 1).astype(int)
    tokens = seconds = 0.0
    for number, place in enumerate(places):
        length = len(ordered[place].input_ids)
        batch = pad([ordered[place]] * max(1, signer.budget // 2 // length), signer.device)
        began = time.perf_counter()
        signer.sign(batch)[1].sum().item()  # waits for a GPU
        if number:
            seconds += time.perf_counter() - began
            tokens += batch.input_ids.numel()
    return tokens / seconds


def _flops_per_token(signer: Any) -> int:
    """4 per weight for a gradient signature (forward and activation gradients), 2 for the others."""
    model = signer.model if hasattr(signer, "model") else signer.models[0]
    factor = 4 if hasattr(signer, "layers") else 2
    return int(factor * sum(weight.numel() for weight in model.parameters()))
