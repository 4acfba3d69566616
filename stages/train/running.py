"""Starting the ranks of a run, or being one of them, around the folder it is built in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from formats import artifacts
from formats.allocation import Allocation
from formats.errors import ArtifactError
from stages.launch import launch
from stages.reporting import Reporter, Silent
from stages.train import checkpoints, plan
from stages.train.settings import FILE, Settings
from stages.workers import die_with_parent, world

# How long the ranks may take to write a checkpoint when the run is asked to stop.
SAVING_SECONDS = 600.0


def start(
    settings: Settings, allocation: Allocation, output: Path, force: bool, hostfile: Path | None
) -> None:
    """Starts the ranks and publishes what they made."""
    with _building(settings, allocation, output, force) as folder:
        launch(
            "stages.train.worker",
            folder,
            ranks=allocation.ranks,
            hostfile=hostfile,
            grace=SAVING_SECONDS,
        )
        _publish(output)


def take_part(
    settings: Settings, allocation: Allocation, output: Path, force: bool, reporter: Reporter
) -> None:
    """Is one of the ranks that somebody else started; rank 0 also does what ``start`` does."""
    here = world()
    plan.check_world(allocation, here.size)
    from stages.train.worker import work

    die_with_parent()
    if here.rank == 0:
        with _building(settings, allocation, output, force) as folder:
            work(folder, settings, reporter, publish=lambda: _publish(output))
    else:
        work(artifacts.partial(output), settings, Silent())


@contextlib.contextmanager
def _building(
    settings: Settings, allocation: Allocation, output: Path, force: bool
) -> Iterator[Path]:
    """The locked folder to build in, once the data are known to be the right ones."""
    with artifacts.locked(output):
        plan.check_data(allocation, settings.data)
        built = artifacts.partial(output)
        if not force and checkpoints.found(built):
            _check_resumable(settings, built)
        else:
            artifacts.fresh_partial(output)
        settings.write(built)
        yield built


def _check_resumable(settings: Settings, built: Path) -> None:
    """A stopped run's checkpoints are used as asked, and never thrown away unasked.

    Raises:
        ArtifactError: they are another run's, or nobody said what to do with them.
    """
    step = checkpoints.step_of(checkpoints.found(built)[-1])
    differences = Settings.read(built).differences(settings)
    if differences:
        raise ArtifactError(
            f"{built} holds checkpoints of a run with {', '.join(differences)}",
            fix="give that run's settings with --resume, or begin again with --force",
        )
    if not settings.resume:
        raise ArtifactError(
            f"{built} holds a checkpoint of this run at step {step}",
            fix="go on with --resume, or begin again with --force",
        )


def _publish(output: Path) -> None:
    (artifacts.partial(output) / FILE).unlink()
    artifacts.commit(output)
