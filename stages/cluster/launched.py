"""A map made by several ranks: started here, or by torchrun, DeepSpeed or srun."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

from formats import artifacts
from formats.artifacts import Header
from formats.errors import ClusterCliError, WorkerError
from stages import workers
from stages.cluster.build import build
from stages.cluster.settings import Job
from stages.cluster.summary import report
from stages.cluster.team import Team
from stages.reporting import Console, Reporter, Silent

_JOB = "job.json"


def build_on_ranks(job: Job, ranks: int, hostfile: Path | None, reporter: Reporter) -> None:
    """``build`` on ranks that DeepSpeed's launcher starts; rank 0 shows the progress.

    Raises:
        SettingError, WorkerError, ClusterCliError: see ``stages.launch.launch``.
    """
    from stages.launch import launch

    folder = job.output.absolute().with_name(job.output.name + ".work")
    folder.mkdir(exist_ok=True)
    quiet = not isinstance(reporter, Console) or reporter.quiet
    try:
        artifacts.write_json(folder / _JOB, {**job.to_json(), "quiet": quiet})
        launch("stages.cluster.worker", folder, ranks=ranks, hostfile=hostfile)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_rank(folder: Path) -> None:
    """The body of a launched rank: its share of the job described in the folder."""
    value = json.loads((folder / _JOB).read_text(encoding="utf-8"))
    team = Team.join()
    reporter = Silent() if team.rank or value["quiet"] else Console()
    build(Job.from_json(value), team, reporter)


def cluster_in_launch(job: Job, *, force: bool, reporter: Reporter) -> Header:
    """As ``cluster``, as one of the ranks: rank 0 decides, writes and publishes, all compute.

    Args:
        job: the job, the same on all ranks.
        force, reporter: as in ``cluster``; ranks other than 0 stay silent.

    Returns:
        The artifact's header, on every rank.

    Raises:
        WorkerError: another rank failed.
    """
    workers.die_with_parent()
    team = Team.join()
    if team.rank:
        reporter = Silent()
    try:
        with artifacts.locked(job.output) if team.rank == 0 else contextlib.nullcontext():
            return _together(job, team, force, reporter)
    except ClusterCliError:
        raise
    except RuntimeError as error:  # torch's, when a connection to another rank breaks
        raise WorkerError("another rank failed", fix="look at its message", exit_code=1) from error


def _together(job: Job, team: Team, force: bool, reporter: Reporter) -> Header:
    fresh = None if force else team.first(lambda: up_to_date(job, reporter))
    if fresh is not None:
        return fresh
    build(job, team, reporter)
    return team.first(lambda: publish(job, reporter))


def up_to_date(job: Job, reporter: Reporter) -> Header | None:
    """The header when the output is fresh, having said so; else None."""
    fresh = artifacts.fresh_header(job.output, "clusters", job.key)
    if fresh:
        artifacts.touch(job.output, "clusters")
        reporter.message(f"{job.output} is up to date")
    return fresh


def publish(job: Job, reporter: Reporter) -> Header:
    """Puts the finished map into place and says what is in it."""
    artifacts.commit(job.output)
    header = artifacts.read_header(job.output, "clusters")
    report(header.stats, reporter)
    return header
