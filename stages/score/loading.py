"""Making ready: renderer, model and signer for a job, and the checks before hours are spent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from formats.data import Dataset
from formats.errors import ModelError
from formats.rendering import Rendered, Renderer
from stages import models
from stages.reporting import Reporter
from stages.score import warmup
from stages.score.batches import Signer, pad
from stages.score.layers import coverage
from stages.score.settings import Job


def renderer(job: Job, files: models.ModelFiles) -> Renderer:
    """The one function from row to tokens, with a model's tokenizer."""
    tokenizer = models.load_tokenizer(files, trust_remote_code=job.trust_remote_code)
    settings = job.settings
    return Renderer(tokenizer, max_length=settings.max_length, chat_template=settings.chat_template)


def check_turns(job: Job, dataset: Dataset) -> None:
    """Renders one example of every order of turns that occurs.

    A chat template that refuses an order would otherwise say so hours into the job.

    Raises:
        DataError: the template refuses one; the message names the row.
    """
    render = renderer(job, job.counting())
    seen = set()
    for example in dataset:
        order = (*(message["role"] for message in example.messages), bool(example.tools))
        if order not in seen:
            seen.add(order)
            render(example)


def dims(job: Job, signing: Sequence[models.ModelFiles]) -> int:
    """Numbers kept of each signature of this kind."""
    kind = job.settings.kind
    if kind == "trajectory":
        return len(signing)
    if kind == "loss":
        return 1
    return models.hidden_size(signing[-1]) if kind == "embedding" else job.settings.dims


def signer(job: Job, signing: Sequence[models.ModelFiles], reporter: Reporter) -> Signer:
    """The models, hooked for the job's kind of signature, on this process's device.

    Raises:
        ModelError: a model cannot be loaded, or most of it cannot be seen.
        SettingError: no layer matches.
    """
    from stages.score.controls import EmbeddingSigner, TrajectorySigner
    from stages.score.signers import GradientSigner, HeadSigner

    device = models.compute_device()
    settings = job.settings
    folders = [warmup.warm_files(job.output)] if settings.warmup_fraction else signing
    dtype = models.resolve_dtype(settings.dtype, device)
    loaded = [
        models.load_model(files, dtype=dtype, trust_remote_code=job.trust_remote_code).to(device)
        for files in folders
    ]
    exact = dtype == torch.float32
    shape = {"rank": settings.rank, "dims": settings.dims, "seed": settings.seed}
    budget = job.batch_tokens or (8_192 if device.startswith("cuda") else 2_048)
    if settings.kind == "head":
        return Signer(HeadSigner(loaded[0], **shape), device, budget, exact)
    if settings.kind == "embedding":
        return Signer(EmbeddingSigner(loaded[0]), device, budget, exact)
    if settings.kind in ("loss", "trajectory"):
        return Signer(TrajectorySigner(loaded), device, budget, exact)
    _check_coverage(loaded[0], job.allow_partial, reporter)
    return Signer(GradientSigner(loaded[0], layers=settings.layers, **shape), device, budget, exact)


def _check_coverage(model: Any, allow_partial: bool, reporter: Reporter) -> None:
    share, hidden = coverage(model)
    if not hidden:
        return
    named = ", ".join(hidden[:5]) + (f" and {len(hidden) - 5} more" if len(hidden) > 5 else "")
    problem = f"signatures see {share:.0%} of the model's weights; out of sight: {named}"
    if share < 0.5 and not allow_partial:
        raise ModelError(problem, fix="use a --proxy without such layers, or add --allow-partial")
    reporter.warn(problem)


def check_invariance(signer: Signer, rows: Sequence[Rendered], reporter: Reporter) -> None:
    """Signs the shortest row alone and beside the longest: attention kernels must not care.

    Warns when the cosine of the two is not above 0.999 (0.99 in half precision).
    """
    ordered = sorted(rows, key=lambda row: len(row.input_ids))
    short, long = ordered[0], ordered[-1]
    if len(short.input_ids) == len(long.input_ids):
        return
    alone, _ = signer.sign(pad([short], signer.device))
    beside, _ = signer.sign(pad([short, long], signer.device))
    cosine = float(torch.nn.functional.cosine_similarity(alone[0], beside[0], dim=0))
    if cosine <= (0.999 if signer.exact else 0.99):
        reporter.warn(
            f"a row's signature depends on its companions in a batch (cosine {cosine:.4f}); "
            "the model's attention may not mask padding, try --batch-tokens 1"
        )
