"""Making one evaluation: checks, parts, tasks, figures, and the file."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.data import Dataset
from formats.errors import ArtifactError
from formats.evaluation import KIND, write_evaluation
from formats.rendering import OK, STATUS_NAMES, TRUNCATED
from stages import workers
from stages.evaluate.columns import columns
from stages.evaluate.figures import summarise
from stages.evaluate.harness import run_tasks
from stages.evaluate.parts import Work, compute, pending
from stages.evaluate.programs import Sandbox
from stages.evaluate.rows import group_columns
from stages.evaluate.settings import JOB, Job
from stages.evaluate.subject import refuse_seen, seen_rows
from stages.evaluate.target import Target
from stages.launch import launch
from stages.reporting import Reporter, duration

TASKS = "tasks.json"


@dataclass(frozen=True)
class Making:
    """One call of ``evaluate`` that really computes something."""

    target: Target
    output: Path
    allow_overlap: bool
    force: bool
    reporter: Reporter

    def run(
        self, job: Job, dataset: Dataset, ranks: int, hostfile: Path | None, began: float
    ) -> artifacts.Header:
        """Measures the data, and the tasks where there are any."""
        overlap = self._check_overlap(dataset)
        self._warn_of_code(job)
        job = dataclasses.replace(job, dataset=dataset.reference(None))
        job = self._begin(job)
        work = Work.open(job, dataset)
        self._announce(work, dataset)
        groups = group_columns(dataset, work.read.rows, job.settings)  # a wrong name shows now
        self._compute(work, ranks, hostfile)
        tasks = self._tasks(job)
        results, seconds = work.results(artifacts.partial(self.output))
        examples = columns(work, results) | {"groups": groups}
        figures = summarise(examples, job.settings.samples, job.settings.seed)
        stats = {
            **_counts(work, examples),
            "overlap": overlap,
            "compute_seconds": round(seconds, 3),
            **_closing(figures, began),
        }
        return self._write(stats, dataset, figures, tasks, examples)

    def without_data(self, job: Job, began: float) -> artifacts.Header:
        """Only the tasks of the harness."""
        tasks = self._tasks(self._begin(job))
        figures: dict[str, Any] = {"overall": {}, "by": {}}
        stats = {"rows": 0, **_closing(figures, began)}
        return self._write(stats, None, figures, tasks, {"row": [], "id": [], "groups": {}})

    def _check_overlap(self, dataset: Dataset) -> int | None:
        """How many rows were trained on; None where that is not known."""
        subject = self.target.subject
        if subject.header is None:
            self.reporter.message(
                f"{subject.name} is no run: nobody knows which rows it was trained on"
            )
            return None
        if self.allow_overlap and subject.known_allocation() is None:
            self.reporter.warn(
                f"the allocation of {subject.name} cannot be read: rows that were trained on may be "
                f"among the data, and tokens per example ({self.target.settings.max_length}) and chat "
                "template may not be those of the training"
            )
            return None
        rows = seen_rows(dataset, subject.trained_ids())
        if not self.allow_overlap:
            refuse_seen(dataset, rows, subject.name)
        elif rows:
            self.reporter.warn(f"{len(rows):,} of {len(dataset):,} rows were trained on")
        return len(rows)

    def _warn_of_code(self, job: Job) -> None:
        settings = job.settings
        if settings.run_code:
            box = Sandbox.open(
                settings.code_seconds, settings.code_memory, allow_network=settings.allow_network
            )
            self.reporter.warn(box.says())

    def _begin(self, job: Job) -> Job:
        """The job to do: a half-done one of the same key goes on as it was begun.

        Raises:
            ArtifactError: a half-done output has another key.
        """
        folder = artifacts.partial(self.output)
        begun = any(folder.glob("part-*.json")) or (folder / TASKS).exists()
        if begun and not self.force:
            found = Job.read(folder)
            if found.key != job.key:
                raise ArtifactError(
                    f"{folder} is half done with {', '.join(found.differences(job))}",
                    fix="run the old command to finish it, or add --force to start over",
                )
            return dataclasses.replace(job, batch_tokens=found.batch_tokens, threads=found.threads)
        folder = artifacts.fresh_partial(self.output)
        artifacts.write_json(folder / JOB, job.to_json())
        return job

    def _announce(self, work: Work, dataset: Dataset) -> None:
        if dataset.rejected:
            self.reporter.warn(f"{dataset.rejected:,} unusable rows left out")
        for number, name in enumerate(STATUS_NAMES):
            count = int((work.read.status == number).sum())
            if count and number not in (OK, TRUNCATED):
                self.reporter.warn(f"{count:,} rows are not measured: {name}")
        for kind, count in work.read.too_long.items():
            self.reporter.warn(
                f"{count:,} rows have no {kind}: longer than {work.job.settings.max_length} tokens"
            )
        left = len(pending(work, artifacts.partial(self.output)))
        if left < len(work.parts):
            done = len(work.parts) - left
            self.reporter.message(
                f"resuming: {done:,} of {len(work.parts):,} parts were done before"
            )

    def _compute(self, work: Work, ranks: int, hostfile: Path | None) -> None:
        folder = artifacts.partial(self.output).absolute()
        if ranks == 1 and hostfile is None:
            compute(work, folder, workers.World(0, 1, 0), self.reporter)
        elif pending(work, folder):
            launch("stages.evaluate.worker", folder, ranks=ranks, hostfile=hostfile)

    def _tasks(self, job: Job) -> dict[str, Any]:
        """The harness's figures; once had, they stay with the half-done evaluation."""
        if not job.settings.tasks:
            return {}
        kept = artifacts.partial(self.output) / TASKS
        if not kept.exists():
            artifacts.write_json(kept, run_tasks(job, self.reporter))
        found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return found

    def _write(
        self,
        stats: dict[str, Any],
        dataset: Dataset | None,
        figures: dict[str, Any],
        tasks: dict[str, Any],
        examples: dict[str, Any],
    ) -> artifacts.Header:
        header = self._header(stats, dataset)
        write_evaluation(self.output, header, results=figures, tasks=tasks, examples=examples)
        shutil.rmtree(artifacts.partial(self.output), ignore_errors=True)
        self.reporter.message(f"{self.output}: {_in_words(stats)}")
        return artifacts.read_header(self.output, KIND)

    def _header(self, stats: dict[str, Any], dataset: Dataset | None) -> artifacts.Header:
        subject, folder = self.target.subject, self.output.parent
        place = subject.run or subject.files.folder
        known = subject.header.key if subject.header else subject.files.weights_sha256
        named = os.path.relpath(place, folder) if Path(subject.name).exists() else subject.name
        sources = [dataclasses.asdict(source) for source in dataset.sources] if dataset else []
        return artifacts.Header(
            kind=KIND,
            key=self.target.key,
            params={
                **dataclasses.asdict(self.target.settings),
                "allow_overlap": self.allow_overlap,
            },
            inputs=[{"path": named, "sha256": known, "rows": None}, *sources],
            stats=stats,
            dataset=dataset.reference(folder) if dataset else {},
            extra={"contents": self.target.inputs},
        )


def _counts(work: Work, examples: dict[str, Any]) -> dict[str, Any]:
    counts = {name: int((work.read.status == n).sum()) for n, name in enumerate(STATUS_NAMES)}
    return {
        "rows": len(work.read.status),
        "measured": len(examples["row"]),
        "status": {name: count for name, count in counts.items() if count},
        "too_long": work.read.too_long,
        "tokens": int(sum(examples["tokens"])),
    }


def _closing(figures: dict[str, Any], began: float) -> dict[str, Any]:
    return {"seconds": round(time.monotonic() - began, 2), "overall": figures["overall"]}


def _in_words(stats: dict[str, Any]) -> str:
    took = f"in {duration(stats['seconds'])}"
    if "loss" not in stats["overall"]:
        return f"tasks only, {took}"
    return (
        f"{stats['measured']:,} of {stats['rows']:,} rows, answer loss "
        f"{stats['overall']['loss']['value']:.4f} per example and "
        f"{stats['overall']['token_loss']['value']:.4f} per token, {took}"
    )
