"""``python -m stages.evaluate.worker FOLDER``: one rank of an evaluation."""

from __future__ import annotations

from pathlib import Path

from stages.evaluate.parts import run_rank
from stages.evaluate.settings import Job
from stages.reporting import Console, Silent
from stages.workers import run_worker, world


def main(folder: Path) -> None:
    """This rank's parts of the job that the folder describes."""
    place = world()
    first = place.rank == 0
    run_rank(folder, place, Console(quiet=Job.read(folder).quiet) if first else Silent())


if __name__ == "__main__":
    run_worker(main)
