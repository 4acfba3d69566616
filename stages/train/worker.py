"""One rank of a training run: loads, trains, writes its part of the run folder.

``python -m stages.train.worker FOLDER`` is what the launcher starts; ``work`` is also called directly by
a process that torchrun or SLURM started.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from formats import artifacts
from formats.allocation import Allocation
from stages import models
from stages.reporting import Console, Reporter, Silent
from stages.train import engine, lora, plan, prepare, record
from stages.train.evaluate import Evaluation
from stages.train.loop import Loop
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
    renderer = prepare.renderer(tokenizer, allocation, settings)
    evaluation = _evaluation(settings, allocation, renderer, device)
    loop, used = prepare.loop(settings, allocation, files, device)
    with plan.open_data(allocation, settings.data) as dataset:
        reporter.message(_opening(allocation, loop, used))
        if used["dtype"] == "bfloat16" and used["zero_stage"] == 0:
            reporter.warn(
                "bfloat16 without ZeRO keeps no float32 copy of the weights, so small updates are "
                "lost; use --zero-stage 1 or more"
            )
        save = partial(_save, settings=settings, loop=loop, tokenizer=tokenizer, files=files)
        session = Session(folder, settings, allocation, loop, reporter, evaluation, save)
        setup = time.perf_counter() - began
        session.run(lambda row: renderer(dataset[row]))
    session.finish()
    gathered: list[Any] = [None] * here.size
    dist.all_gather_object(gathered, {**loop.clock.seconds, "peak": record.peak_memory(device)})
    if here.rank == 0:
        seconds = {"setup_seconds": setup, **record.per_rank(gathered)}
        stats = {**session.stats(), **seconds, **used}
        header = record.header(settings, allocation, files, stats)
        artifacts.write_json(folder / "run.json", header.to_json())
    dist.barrier()


def _evaluation(
    settings: Settings, allocation: Allocation, renderer: Any, device: str
) -> Evaluation | None:
    if not settings.eval_data:
        return None
    options = allocation.header.dataset["options"]
    micro = allocation.micro_batch
    return Evaluation.open(settings.eval_data, options, renderer, micro, device)


def _save(
    folder: Path, *, settings: Settings, loop: Loop, tokenizer: Any, files: models.ModelFiles
) -> None:
    """Writes the model as it is in Hugging Face format; under LoRA, the adapter beside it too."""
    model = loop.engine.module
    state = engine.whole_state(loop.engine)
    if world().rank > 0:
        return
    if settings.lora:
        lora.save_merged(model, state, files, folder, next(model.parameters()).dtype)
    else:
        model.save_pretrained(folder, state_dict=state)
    tokenizer.save_pretrained(folder)


def quieten() -> None:
    """Bars and notices of libraries would come once per rank and say nothing of the training."""
    import warnings

    from transformers.utils import logging

    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def _opening(allocation: Allocation, loop: Loop, used: dict[str, Any]) -> str:
    ranks = f"{allocation.ranks} {used['device']} rank{'s' * (allocation.ranks > 1)}"
    return (
        f"training {used['weights'] / 1e6:,.1f} M weights in {used['dtype']} on {ranks}, "
        f"ZeRO {used['zero_stage']}: {allocation.steps:,} steps of {allocation.batch:,.6g} examples"
    )


if __name__ == "__main__":
    run_worker(main)
