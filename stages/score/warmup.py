"""A brief training before scoring, on a random part of the data (as LESS does, Xia et al. 2024).

Gradients of an untouched base model speak mostly of format; after a short warm-up they speak of what is
left to learn. Plain PyTorch, one process; the warmed model lies beside the half-done output until that is
complete, so a killed run resumes with the very same weights.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from formats import artifacts
from formats.data import Dataset
from formats.errors import ModelError
from formats.rendering import OK, TRUNCATED, Rendered, Renderer
from formats.signatures import as_keys
from stages import models
from stages.reporting import Reporter
from stages.score.batches import pad
from stages.score.settings import Job

EPOCHS, BATCH_ROWS, LEARNING_RATE = 2, 8, 1e-4  # the rate of LoRA is ten times this


def folder(output: Path) -> Path:
    """Where the warmed model lies while the output is being made."""
    return output.with_name(output.name + ".warm")


def warm_files(output: Path) -> models.ModelFiles:
    """The warmed model."""
    return models.find_model(folder(output) / "model")


def forget(output: Path) -> None:
    """Removes the warmed model."""
    shutil.rmtree(folder(output), ignore_errors=True)


def warm_up(
    job: Job, dataset: Dataset, files: models.ModelFiles, key: str, reporter: Reporter
) -> None:
    """Trains a copy of the model and leaves it in ``folder``; does nothing when it is there.

    Args:
        job: the settings; the rows are drawn by their ids and the seed, not by their order.
        dataset: all examples.
        files: the model to start from.
        key: of the result the warm-up is for.
        reporter: hears progress.

    Raises:
        ModelError: the model cannot be loaded, or ``lora`` is asked for without peft.
    """
    place = folder(job.output)
    if (place / "key").exists() and (place / "key").read_text() == key:
        return
    shutil.rmtree(place, ignore_errors=True)
    tokenizer = models.load_tokenizer(files, trust_remote_code=job.trust_remote_code)
    settings = job.settings
    render = Renderer(
        tokenizer, max_length=settings.max_length, chat_template=settings.chat_template
    )
    chosen = choose(dataset.ids, settings.warmup_fraction, settings.seed)
    rows = [row for row in (render(dataset[i]) for i in chosen) if row.status in (OK, TRUNCATED)]
    device = models.compute_device()
    model = models.load_model(
        files, dtype=torch.float32, trust_remote_code=job.trust_remote_code
    ).to(device)
    torch.manual_seed(settings.seed)
    model = _train(model, rows, settings, device, reporter)
    model.save_pretrained(place / "model")
    tokenizer.save_pretrained(place / "model")
    artifacts.write_json(place / "rows.json", [int(i) for i in chosen])
    (place / "key").write_text(key)  # last: marks it complete


def choose(ids: np.ndarray, fraction: float, seed: int) -> list[int]:
    """Rows of a random part of the distinct contents, ascending; at least one batch when possible."""
    _, first = np.unique(
        as_keys(ids), return_index=True
    )  # ascending by id: order of rows plays no part
    count = min(len(first), max(BATCH_ROWS, round(fraction * len(first))))
    return sorted(first[np.random.default_rng(seed).permutation(len(first))[:count]].tolist())


def _train(model: Any, rows: list[Rendered], settings: Any, device: str, reporter: Reporter) -> Any:
    if settings.warmup == "lora":
        model = _with_lora(model)
    rate = LEARNING_RATE * (10 if settings.warmup == "lora" else 1)
    trainable = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=rate, weight_decay=0.0)
    rng = np.random.default_rng(settings.seed)
    steps = EPOCHS * -(-len(rows) // BATCH_ROWS)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    with reporter.progress("warm-up", steps, "steps") as advance:
        for _ in range(EPOCHS):
            order = rng.permutation(len(rows))
            for start in range(0, len(rows), BATCH_ROWS):
                members = [rows[i] for i in order[start : start + BATCH_ROWS]]
                loss = _mean_loss(model, pad(members, device))
                loss.backward()
                torch.nn.utils.clip_grad_norm_(trainable, 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                schedule.step()
                advance(1, f"loss {loss.item():.4f}")
    return model.merge_and_unload() if settings.warmup == "lora" else model


def _mean_loss(model: Any, batch: Any) -> torch.Tensor:
    """Mean over the batch of each example's mean loss, as training minimises it."""
    logits = model(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False
    ).logits[:, :-1]
    supervised = batch.supervised[:, 1:]
    target = batch.input_ids[:, 1:]
    token = torch.nn.functional.cross_entropy(
        logits[supervised].float(), target[supervised], reduction="none"
    )
    share = (1.0 / supervised.sum(1).clamp(min=1))[supervised.nonzero(as_tuple=True)[0]]
    return (token * share).sum() / len(batch.input_ids)


def _with_lora(model: Any) -> Any:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ModelError(
            "--warmup lora needs the peft package", fix="pip install 'cluster-cli[lora]'"
        ) from error
    return get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
