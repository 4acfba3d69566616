"""A rank's training from the first step, or from a checkpoint, to the last."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from formats.allocation import Allocation
from formats.runs import METRICS, MetricsWriter
from stages.reporting import Reporter
from stages.train import batches, checkpoints
from stages.train.checkpoints import Checkpoints, State
from stages.train.loop import Loop, Totals
from stages.train.settings import Settings
from stages.workers import world

TERMINATED = 143


class Session:
    """Drives the loop: metrics, progress, checkpoints, SIGTERM.

    Args:
        folder: the run folder being built.
        loop: ready to take steps.
        reporter: rank 0's; silent elsewhere.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        allocation: Allocation,
        loop: Loop,
        reporter: Reporter,
    ) -> None:
        self._folder = folder
        self._allocation = allocation
        self._loop = loop
        self._reporter = reporter
        self._state = State()
        self._checkpoints = Checkpoints(
            folder, settings.checkpoint_every, settings.checkpoint_minutes, settings.keep
        )
        loop.wishes = lambda: (self._checkpoints.stopping, self._checkpoints.wish())
        if settings.resume and checkpoints.found(folder):
            self._resume(checkpoints.found(folder)[-1])

    def run(self, render: Callable[[int], Any]) -> None:
        """Takes all steps that are left.

        Raises:
            NotFiniteError, ArtifactError: see ``Loop.run`` and ``Checkpoints.save``.
            SystemExit: with 143, when a rank got SIGTERM; a checkpoint was written.
        """
        before = signal.signal(signal.SIGTERM, self._asked_to_stop)
        rank, left = world().rank, self._allocation.steps - self._state.step
        multiple = 8 if self._loop.device.startswith("cuda") else 1
        work = batches.steps(
            self._allocation, rank, render, first=self._state.step, multiple=multiple
        )
        self._metrics = self._open_metrics() if rank == 0 else None
        try:
            with self._reporter.progress("training", left, "steps") as self._advance:
                self._loop.clock.restart()
                self._loop.run(work, self._after)
        finally:
            if self._metrics is not None:
                self._metrics.close()
            signal.signal(signal.SIGTERM, before)

    def stats(self) -> dict[str, Any]:
        """Totals of the run, over all its resumptions."""
        seconds = {"train_seconds": self._state.train_seconds, "resumed": self._state.resumed}
        return {**asdict(self._loop.totals), **seconds}

    def _after(self, line: dict[str, Any]) -> None:
        if self._metrics is not None:
            self._metrics.write(line)
        self._advance(1, f"loss {line['loss']:.4f}, {line['tokens_per_second']:,.0f} tokens/s")
        self._state.step = line["step"] + 1
        self._state.train_seconds += line["seconds"]
        finished = self._state.step == self._allocation.steps
        wanted = self._loop.stop or self._loop.save or self._checkpoints.due(self._state.step)
        if wanted and not finished:
            self._save()
        if self._loop.stop and not finished:
            raise SystemExit(TERMINATED)

    def _save(self) -> None:
        began = time.perf_counter()
        if self._metrics is not None:
            self._metrics.sync()
            self._state.metrics_bytes = (self._folder / METRICS).stat().st_size
        self._state.totals = asdict(self._loop.totals)
        clock = self._loop.clock
        self._checkpoints.save(self._loop.engine, self._state, clock.seconds)
        seconds = time.perf_counter() - began
        clock.restart()
        if self._loop.stop:
            self._reporter.message(
                f"stopped before step {self._state.step}, checkpoint written in {seconds:.1f} s; "
                "go on with --resume"
            )

    def _resume(self, checkpoint: Path) -> None:
        self._loop.clock.seconds = checkpoints.restore(self._loop.engine, checkpoint)
        self._state = checkpoints.read_state(checkpoint)
        self._state.resumed += 1
        self._loop.totals = Totals(**self._state.totals)
        self._reporter.message(
            f"resuming at step {self._state.step:,} of {self._allocation.steps:,}"
        )

    def _open_metrics(self) -> MetricsWriter:
        """Behind the last line that belongs to the state; a killed run may have written more."""
        path = self._folder / METRICS
        if path.exists():
            os.truncate(path, self._state.metrics_bytes)
        return MetricsWriter(self._folder)

    def _asked_to_stop(self, number: int, frame: object) -> None:
        self._checkpoints.stopping = True
