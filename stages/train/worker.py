"""One rank of a training run: loads, trains, writes its part of the run folder.

``python -m stages.train.worker FOLDER`` is what the launcher starts; ``work`` is also called directly by
a process that torchrun or SLURM started.
"""

from __future__ import annotations

import platform
import resource
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from formats import artifacts
from formats.allocation import Allocation
from formats.fingerprints import file_sha256
from formats.rendering import Renderer
from formats.runs import MetricsWriter
from stages import models
from stages.reporting import Console, Reporter, Silent
from stages.train import batches, config, engine, plan
from stages.train.clock import Clock
from stages.train.loop import Loop
from stages.train.schedule import learning_rate
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
        setup = time.perf_counter() - began
        with reporter.progress("training", allocation.steps, "steps") as advance:
            _train(folder, loop, allocation, lambda row: renderer(dataset[row]), advance)
    trained = time.perf_counter() - began - setup
    engine.save_model(loop.engine, tokenizer, folder / "model", stage=used["zero_stage"])
    gathered: list[Any] = [None] * here.size
    dist.all_gather_object(gathered, {**loop.clock.seconds, "peak": _peak_memory(device)})
    if here.rank == 0:
        seconds = {"train_seconds": trained, "setup_seconds": setup, **_per_rank(gathered)}
        header = _header(settings, allocation, files, {**asdict(loop.totals), **seconds, **used})
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


def _train(folder: Path, loop: Loop, allocation: Allocation, render: Any, advance: Any) -> None:
    rank = world().rank
    multiple = 8 if loop.device.startswith("cuda") else 1
    work_of = batches.steps(allocation, rank, render, multiple=multiple)

    def after(line: dict[str, Any]) -> None:
        if metrics is not None:
            metrics.write(line)
        advance(1, f"loss {line['loss']:.4f}, {line['tokens_per_second']:,.0f} tokens/s")

    metrics = MetricsWriter(folder) if rank == 0 else None
    try:
        loop.clock = Clock(loop.device)
        loop.run(work_of, after)
    finally:
        if metrics is not None:
            metrics.close()


def _opening(allocation: Allocation, loop: Loop, used: dict[str, Any]) -> str:
    return (
        f"training {used['weights'] / 1e6:,.1f} M weights in {used['dtype']} on {allocation.ranks} "
        f"{used['device']} ranks, ZeRO {used['zero_stage']}: {allocation.steps:,} steps of "
        f"{loop.ranks * loop.accumulation * loop.micro_batch} examples"
    )


def _peak_memory(device: str) -> int:
    """Bytes: the GPU's, or this process's resident memory on the CPU."""
    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _per_rank(gathered: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean seconds per section, and what differs between ranks as lists."""
    names = [name for name in gathered[0] if name not in ("wait", "peak")]
    seconds = {f"{n}_seconds": sum(g[n] for g in gathered) / len(gathered) for n in names}
    return {
        **seconds,
        "wait_seconds": [each["wait"] for each in gathered],
        "peak_memory_bytes": [each["peak"] for each in gathered],
    }


def _versions() -> dict[str, str]:
    import deepspeed
    import transformers

    modules = {"torch": torch, "transformers": transformers, "deepspeed": deepspeed}
    return {
        "python": platform.python_version(),
        **{name: module.__version__ for name, module in modules.items()},
    }


def _header(
    settings: Settings, allocation: Allocation, files: models.ModelFiles, stats: dict[str, Any]
) -> artifacts.Header:
    manifest = Path(settings.allocation) / "manifest.json"
    stats = {**stats, "world_size": allocation.ranks, "versions": _versions()}
    return artifacts.Header(
        kind="run",
        key=settings.key,
        params=settings.shown(),
        inputs=[
            {
                "path": settings.allocation,
                "sha256": file_sha256(manifest),
                "rows": stats["examples"],
            },
            {"path": settings.model, "sha256": files.weights_sha256, "rows": None},
        ],
        stats=stats,
        dataset=artifacts.rebase_dataset(
            plan.reference(allocation, settings.data), None, Path(settings.output)
        ),
    )


if __name__ == "__main__":
    run_worker(main)
