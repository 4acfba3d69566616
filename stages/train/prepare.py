"""Getting a rank ready: model, engine, and the loop that will drive it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from formats.allocation import Allocation
from formats.errors import SettingError
from formats.rendering import Renderer
from stages import models
from stages.train import config, engine, lora, quantize
from stages.train.clock import Clock
from stages.train.loop import Loop
from stages.train.schedule import learning_rate
from stages.train.settings import Settings
from stages.workers import world

Render = Callable[[Any], Any]  # an Example to a Rendered


def renderer(tokenizer: Any, allocation: Allocation, settings: Settings) -> Render:
    """Renders as the data were rendered when they were scored."""
    rendering = allocation.header.extra["rendering"]
    return Renderer(
        tokenizer,
        max_length=settings.max_length or rendering["max_length"],
        chat_template=rendering["chat_template"],
    )


def loop(
    settings: Settings, allocation: Allocation, files: models.ModelFiles, device: str
) -> tuple[Loop, dict[str, Any]]:
    """The loop, its engine ready, and what ``run.json`` says about how it runs.

    Raises:
        SettingError: the device cannot train in the type asked for.
        ModelError: the model cannot be loaded.
    """
    auto = str(models.resolve_dtype("auto", device)).removeprefix("torch.")
    full = config.build(settings, allocation, auto if settings.dtype == "auto" else settings.dtype)
    dtype = models.resolve_dtype(config.dtype_name(full), device)
    if dtype == torch.float16 and device == "cpu":
        raise SettingError("float16 cannot be trained in on a CPU", fix="use --dtype bfloat16")
    if settings.offload and device.startswith("cuda"):
        config.pin_memory(full)
    model = _model(settings, files, dtype, device)
    peak, decay = config.learning_rate(full, settings), settings.weight_decay
    used = {
        "device": device.split(":")[0],
        "weights": sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
        "dtype": str(dtype).removeprefix("torch."),
        "zero_stage": config.zero_stage(full),
        "deepspeed_config": full,
    }
    built = engine.build_engine(
        model,
        full,
        learning_rate=peak,
        weight_decay=config.WEIGHT_DECAY if decay is None else decay,
        device=device,
    )
    engine.seed_everything(settings.seed + world().rank)  # dropout differs between ranks
    ready = Loop(
        engine=built,
        rate=None if "scheduler" in full else _rate(settings, allocation.steps, peak),
        share=allocation.batch / (allocation.ranks * allocation.accumulation),
        accumulation=allocation.accumulation,
        ranks=allocation.ranks,
        device=device,
        clock=Clock(device),
    )
    return ready, used


def _model(settings: Settings, files: models.ModelFiles, dtype: torch.dtype, device: str) -> Any:
    engine.seed_everything(settings.seed)
    if settings.quantize:
        quantize.check()
        model = quantize.load(files, dtype=dtype, device=device)
    else:
        model = models.load_model(files, dtype=dtype)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return lora.wrap(model, settings) if settings.lora else model


def _rate(settings: Settings, steps: int, peak: float) -> Callable[[int], float]:
    return lambda step: learning_rate(
        step, steps=steps, peak=peak, warmup=settings.warmup, schedule=settings.schedule
    )


def mean_response_tokens(
    allocation: Allocation, render: Callable[[int], Any], device: str
) -> float:
    """Supervised tokens per example over one epoch of the whole plan; renders this rank's part."""
    tokens = examples = 0
    for plan in allocation.rank(world().rank):
        if plan.epoch > 0:
            break
        tokens += sum(int(render(row).supervised[1:].sum()) for row in plan.rows)
        examples += len(plan.rows)
    sums = torch.tensor([tokens, examples], dtype=torch.int64, device=device)
    dist.all_reduce(sums)
    return float(sums[0]) / float(sums[1])
