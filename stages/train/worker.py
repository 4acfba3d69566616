"""One rank of a training run: loads, trains, writes its part of the run folder.

``python -m stages.train.worker FOLDER`` is what the launcher starts; ``work`` is also called directly by
a process that torchrun or SLURM started.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from formats import artifacts
from formats.allocation import Allocation
from formats.rendering import Renderer
from stages import models
from stages.reporting import Console, Reporter, Silent
from stages.train import config, engine, plan, record
from stages.train.clock import Clock
from stages.train.loop import Loop
from stages.train.schedule import learning_rate
from stages.train.session import Session
from stages.train.settings import Settings
from stages.workers import run_worker, world


def main(folder: Path) -> None:
    """The body of a launched worker."""
    settings = Settings.read(folder)
    work(folder, settings, Console(quiet=settings.quiet))


def work(
    folder: Path,
    settings: Settings,
    reporter: Reporter,
    publish: Callable[[], None] = lambda: None,
) -> None:
    """Trains this rank's part and, with the others, leaves a complete run in ``folder``.

    Args:
        folder: the run folder being built; it exists when rank 0 gets here.
        publish: called on rank 0 when the folder is complete, before any rank returns.

    Raises:
        SettingError: the world is not the plan's, or the DeepSpeed configuration contradicts it.
        ModelError: the model or tokenizer cannot be loaded.
        NotFiniteError: a loss or gradient is NaN or infinite.
        SystemExit: 143 after SIGTERM, a checkpoint written.
    """
    began = time.perf_counter()
    quieten()
    engine.join_ranks(models.compute_device())
    train_rank(folder, settings, reporter, began)
    if world().rank == 0:
        publish()
    dist.barrier()
    dist.destroy_process_group()


def train_rank(folder: Path, settings: Settings, reporter: Reporter, began: float) -> None:
    """The same for ranks that are connected already; ``began`` is when setting up began."""
    here = world()
    reporter = reporter if here.rank == 0 else Silent()
    allocation = Allocation.open(settings.allocation)
    plan.check_world(allocation, here.size)
    device = models.compute_device()
    files = models.find_model(settings.model)
    tokenizer = models.load_tokenizer(files)
    renderer = _renderer(tokenizer, allocation, settings)
    loop, used = _prepare(settings, allocation, files, device)
    with plan.open_data(allocation, settings.data) as dataset:
        reporter.message(_opening(allocation, loop, used))
        session = Session(folder, settings, allocation, loop, reporter)
        setup = time.perf_counter() - began
        session.run(lambda row: renderer(dataset[row]))
    engine.save_model(loop.engine, tokenizer, folder / "model", stage=used["zero_stage"])
    gathered: list[Any] = [None] * here.size
    dist.all_gather_object(gathered, {**loop.clock.seconds, "peak": record.peak_memory(device)})
    if here.rank == 0:
        seconds = {"setup_seconds": setup, **record.per_rank(gathered)}
        stats = {**session.stats(), **seconds, **used}
        header = record.header(settings, allocation, files, stats)
        artifacts.write_json(folder / "run.json", header.to_json())
    dist.barrier()


def quieten() -> None:
    """Bars and notices of libraries would come once per rank and say nothing of the training."""
    import warnings

    from transformers.utils import logging

    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def _renderer(tokenizer: Any, allocation: Allocation, settings: Settings) -> Any:
    rendering = allocation.header.extra["rendering"]
    return Renderer(
        tokenizer,
        max_length=settings.max_length or rendering["max_length"],
        chat_template=rendering["chat_template"],
    )


def _prepare(
    settings: Settings, allocation: Allocation, files: models.ModelFiles, device: str
) -> tuple[Loop, dict[str, Any]]:
    """The loop, its engine ready, and the settings it really runs with."""
    auto = str(models.resolve_dtype("auto", device)).removeprefix("torch.")
    wanted = auto if settings.dtype == "auto" else settings.dtype
    full = config.build(settings, allocation, wanted)
    dtype = models.resolve_dtype(config.dtype_name(full), device)
    engine.seed_everything(settings.seed)
    model = models.load_model(files, dtype=dtype)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    peak = settings.learning_rate or config.LEARNING_RATE
    rate_in_file = full.get("optimizer", {}).get("params", {}).get("lr")
    peak = peak if rate_in_file is None else rate_in_file
    decay = config.WEIGHT_DECAY if settings.weight_decay is None else settings.weight_decay
    used = {
        "device": device.split(":")[0],
        "weights": sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
        **engine.effective(full, dtype=dtype),
    }
    built = engine.build_engine(model, full, learning_rate=peak, weight_decay=decay, device=device)
    engine.seed_everything(settings.seed + world().rank)  # dropout differs between ranks

    def rate(step: int) -> float:
        return learning_rate(
            step,
            steps=allocation.steps,
            peak=peak,
            warmup=settings.warmup,
            schedule=settings.schedule,
        )

    loop = Loop(
        engine=built,
        rate=None if "scheduler" in full else rate,
        micro_batch=allocation.micro_batch,
        accumulation=allocation.accumulation,
        ranks=allocation.ranks,
        device=device,
        clock=Clock(device),
    )
    return loop, used


def _opening(allocation: Allocation, loop: Loop, used: dict[str, Any]) -> str:
    return (
        f"training {used['weights'] / 1e6:,.1f} M weights in {used['dtype']} on {allocation.ranks} "
        f"{used['device']} ranks, ZeRO {used['zero_stage']}: {allocation.steps:,} steps of "
        f"{loop.ranks * loop.accumulation * loop.micro_batch} examples"
    )


if __name__ == "__main__":
    run_worker(main)
