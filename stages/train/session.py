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
from stages.train import batches, checkpoints, monitors
from stages.train.checkpoints import Checkpoints, State
from stages.train.evaluate import Evaluation, overall
from stages.train.loop import Loop, Totals
from stages.train.prepare import mean_response_tokens
from stages.train.settings import Settings
from stages.workers import world

TERMINATED = 143
MODEL, BEST = "model", "best"


class Session:
    """Drives the loop: metrics, progress, checkpoints, SIGTERM.

    Args:
        folder: the run folder being built.
        loop: ready to take steps.
        reporter: rank 0's; silent elsewhere.
        evaluation: what to evaluate on before, after and meanwhile, if anything.
        save_model: writes the model as it is into a folder; called on all ranks.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        allocation: Allocation,
        loop: Loop,
        reporter: Reporter,
        evaluation: Evaluation | None,
        save_model: Callable[[Path], None],
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._evaluation = evaluation
        self._save_model = save_model
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
        work = batches.steps(
            self._allocation,
            rank,
            render,
            first=self._state.step,
            multiple=8 if self._loop.device.startswith("cuda") else 1,
            per_token=self._per_token(render),
        )
        self._metrics = self._open_metrics() if rank == 0 else None
        try:
            if self._state.step == 0:
                self._evaluate()
            with self._reporter.progress("training", left, "steps") as self._advance:
                self._loop.run(work, self._after)
        finally:
            if self._metrics is not None:
                self._metrics.close()
            signal.signal(signal.SIGTERM, before)

    def stats(self) -> dict[str, Any]:
        """Totals of the run, over all its resumptions."""
        return {
            **asdict(self._loop.totals),
            "train_seconds": self._state.train_seconds,
            "resumed": self._state.resumed,
            **({"eval": self._state.evaluations} if self._evaluation else {}),
        }

    def _per_token(self, render: Callable[[int], Any]) -> float | None:
        if self._settings.loss_per == "example":
            return None
        return mean_response_tokens(self._allocation, render, self._loop.device)

    def _evaluate(self) -> None:
        """Evaluates the model as it is between two steps."""
        if self._evaluation is None:
            return
        began = time.perf_counter()
        result = self._evaluation.run(self._loop.engine)
        line = {"step": self._state.step, "eval": result}
        self._state.evaluations.append(line)
        if self._metrics is not None:
            self._metrics.write({**line, "seconds": time.perf_counter() - began})
        losses = ", ".join(f"{name} {each['loss']:.4f}" for name, each in result.items())
        self._reporter.message(f"answer loss before step {self._state.step}: {losses}")
        monitors.evaluated(self._loop.engine, result)
        if self._settings.keep_best and self._since_best() == 0:
            self._save_model(self._folder / BEST)

    def _since_best(self) -> int:
        """Evaluations since the best one."""
        losses = [overall(each["eval"]) for each in self._state.evaluations]
        return len(losses) - 1 - losses.index(min(losses))

    def finish(self) -> None:
        """Leaves the model to be kept in ``model/``."""
        if not self._settings.keep_best:
            self._save_model(self._folder / MODEL)
        elif world().rank == 0:
            os.rename(self._folder / BEST, self._folder / MODEL)

    def _after(self, line: dict[str, Any]) -> bool:
        if self._metrics is not None:
            self._metrics.write(line)
        monitors.stepped(self._loop.engine, line)
        self._advance(1, f"loss {line['loss']:.4f}, {line['tokens_per_second']:,.0f} tokens/s")
        self._state.step = line["step"] + 1
        self._state.train_seconds += line["seconds"]
        finished = self._state.step == self._allocation.steps
        every = self._settings.eval_every
        if finished or (every is not None and self._state.step % every == 0):
            self._evaluate()
        if self._settings.patience and self._since_best() >= self._settings.patience:
            self._reporter.message(f"stopped early before step {self._state.step}: no better since")
            return True
        wanted = self._loop.stop or self._loop.save or self._checkpoints.due(self._state.step)
        if wanted and not finished:
            self._save()
        if self._loop.stop and not finished:
            raise SystemExit(TERMINATED)
        return False

    def _save(self) -> None:
        began = time.perf_counter()
        if self._metrics is not None:
            self._metrics.sync()
            self._state.metrics_bytes = (self._folder / METRICS).stat().st_size
        self._state.totals = asdict(self._loop.totals)
        self._checkpoints.save(self._loop.engine, self._state, self._loop.clock.seconds)
        seconds = time.perf_counter() - began
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
