"""Scoring inside somebody else's launch: torchrun, DeepSpeed's launcher or srun started the ranks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from formats import artifacts
from formats.errors import ClusterCliError, WorkerError
from stages import workers
from stages.reporting import Reporter, Silent
from stages.score import spent, stage
from stages.score.settings import Job


def score_in_launch(job: Job, *, force: bool, reporter: Reporter) -> artifacts.Header:
    """As ``score``, as one of the ranks: rank 0 decides and seals, all compute.

    Args:
        job: the job, the same on all ranks.
        force, reporter: as in ``score``; ranks other than 0 stay silent.

    Returns:
        The artifact's header, on every rank.

    Raises:
        WorkerError: another rank failed.
    """
    import torch.distributed as dist

    workers.die_with_parent()
    place = workers.export_world()
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    reporter = reporter if place.rank == 0 else Silent()
    target = stage.Target.of(job)
    with artifacts.locked(job.output) if place.rank == 0 else contextlib.nullcontext():
        started = time.monotonic()
        fresh = None
        with _together(place.rank):
            if place.rank == 0 and not force:
                fresh = stage.up_to_date(job.output, target.key, reporter)
        if _from_first(fresh is not None):
            return artifacts.read_header(job.output, "signatures")
        with stage.open_job_data(job, reporter) as dataset:
            with _together(place.rank):
                if place.rank == 0:
                    stage.prepare(job, dataset, target, force, reporter)
                    started -= spent.earlier(job.output)
            with _together(place.rank):
                known = target.known(job)
                stage.work(job, dataset, target, known, place, reporter)
            with _together(place.rank):
                if place.rank == 0:
                    seconds = time.monotonic() - started
                    stage.finish(job, dataset, target, known, seconds, reporter)
    return artifacts.read_header(job.output, "signatures")


def _from_first(value: bool) -> bool:
    """Rank 0's value, on every rank."""
    import torch.distributed as dist

    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


@contextlib.contextmanager
def _together(rank: int) -> Iterator[None]:
    """A step that all ranks leave together: when one fails in it, all do, and none waits forever."""
    import torch.distributed as dist

    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    said: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(said, str(failure) if failure else None)
    if failure:
        raise failure
    for other, text in enumerate(said):
        if text:
            raise WorkerError(f"rank {other} failed: {text}", exit_code=ClusterCliError.exit_code)
