"""A worker that trains several runs, one after the other: starting ranks costs seconds, a run does not.

The work folder holds ``cases.json``: the ``Settings`` of each run.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from stages import models
from stages.reporting import Silent
from stages.train import engine, worker
from stages.train.settings import Settings
from stages.workers import run_worker, world


def body(folder: Path) -> None:
    """Trains every case into the folder its settings name."""
    import torch.distributed as dist

    worker.quieten()
    engine.join_ranks(models.compute_device())
    for raw in json.loads((folder / "cases.json").read_text()):
        settings = Settings.from_json(raw)
        if world().rank == 0:
            Path(settings.output).mkdir()
        dist.barrier()
        worker.train_rank(Path(settings.output), settings, Silent(), time.perf_counter())
    dist.destroy_process_group()


if __name__ == "__main__":
    run_worker(body)
