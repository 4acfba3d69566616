"""What would scoring cost? Rows, tokens, FLOPs, bytes on disk, and the time, from a short probe."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from formats.data import Dataset
from formats.errors import DataError
from formats.rendering import OK, TRUNCATED, Rendered
from stages import models
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


def measure(
    job: Job, dataset: Dataset, target: Any, count: int, goal: float, reporter: Reporter
) -> dict[str, Any]:
    """The meters on a sample: which setting follows the exact gradients, and are clusters lessons?

    Args:
        job, dataset, target: as ``score`` works them out.
        count: examples to sample.
        goal: correlation to reach.
        reporter: hears warnings.

    Returns:
        ``candidates``, ``recommended`` and ``lessons`` (see ``stages.score.meter``).

    Raises:
        ModelError: the model cannot be loaded.
        DataError: fewer than 20 usable examples.
    """
    from sklearn.cluster import KMeans

    from stages.score import meter

    rows = _sample(job, dataset, target, np.arange(len(dataset)), count)
    if len(rows) < 20:
        raise DataError(f"the meter needs 20 usable examples, there are {len(rows)}")
    device, files = models.compute_device(), target.signing[-1]

    def load() -> Any:
        return models.load_model(
            files, dtype=torch.float32, trust_remote_code=job.trust_remote_code
        ).to(device)

    model = load()
    lines, signatures = meter.compare_candidates(model, rows, job.batch_tokens or 2_048)
    signature = signatures["gradient, rank 64"]
    del model
    centred = signature.astype(np.float32) - signature.mean(axis=0, dtype=np.float32)
    label = KMeans(8, n_init=4, random_state=0).fit_predict(centred)
    lessons = meter.lesson_test(load, rows, label, device=device)
    return {
        "rows": len(rows),
        "goal": goal,
        "candidates": lines,
        "recommended": meter.recommend(lines, goal),
        "lessons": lessons,
    }


def _sample(
    job: Job, dataset: Dataset, target: Any, rows: np.ndarray, count: int = _PROBE_ROWS
) -> list[Rendered]:
    render = loading.renderer(job, target.signing[-1])
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.permutation(rows)[:count])
    rendered = (render(dataset[int(row)]) for row in chosen)
    return [row for row in rendered if row.status in (OK, TRUNCATED)]


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
