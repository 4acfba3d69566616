"""An evaluation in parts: what is finished stays finished, whoever computes the rest.

Batches are formed once over all items, longest first; a part is a run of batches, and part p belongs to
rank p % ranks. Composition does not depend on ranks or resumptions, so neither do the figures.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.data import Dataset, open_reference
from formats.errors import ModelError
from stages import models
from stages.batching import batches
from stages.evaluate.compute import Computer, check_room
from stages.evaluate.items import (
    ANSWER,
    CHOICE,
    LOSS,
    Item,
    Read,
    portions,
    read_items,
)
from stages.evaluate.programs import Sandbox, program_of
from stages.evaluate.rows import read_tests
from stages.evaluate.settings import Job
from stages.reporting import Reporter
from stages.workers import World

_MOST = 256  # parts of a kind


@dataclass(frozen=True)
class Work:
    """The items of a job and their parts; the same in every process.

    Attributes:
        job: what it is for.
        dataset: the rows.
        read: what they hold.
        parts: lists of batches, a batch being a list of items' numbers.
    """

    job: Job
    dataset: Dataset
    tokenizer: Any
    read: Read
    parts: list[list[list[int]]]

    @classmethod
    def open(cls, job: Job, dataset: Dataset) -> Work:
        """Reads every row.

        Raises:
            DataError, SettingError: see ``items.read_items``.
        """
        files = models.find_model(job.model)
        if files.weights_sha256 != job.inputs["model"]:
            raise ModelError(f"{job.model} has changed while it was in use", fix="start again")
        tokenizer = models.load_tokenizer(files, trust_remote_code=job.trust_remote_code)
        read = read_items(dataset, tokenizer, job.settings)
        kinds = ((LOSS, CHOICE), (ANSWER,))
        parts = [part for some in kinds for part in _parts(read.items, some, job)]
        return cls(job, dataset, tokenizer, read, parts)

    def results(self, folder: Path) -> tuple[dict[int, Any], float]:
        """Each item's result, from the finished parts, and the seconds they took all together."""
        found: dict[int, Any] = {}
        seconds = 0.0
        for number in range(len(self.parts)):
            part = json.loads((folder / _file(number)).read_text(encoding="utf-8"))
            found.update(zip(part["items"], part["results"], strict=True))
            seconds += part["seconds"]
        return found, seconds


def _parts(items: list[Item], kinds: tuple[str, ...], job: Job) -> list[list[list[int]]]:
    """The parts of some kinds of items; an answer also takes the tokens that are to come."""
    numbers = [n for n, item in enumerate(items) if item.kind in kinds]
    more = job.settings.new_tokens if ANSWER in kinds else 0
    lengths = [len(items[n].input_ids) + more for n in numbers]
    formed = [[numbers[i] for i in batch] for batch in batches(lengths, job.batch_tokens)]
    return portions(formed, _MOST)


def _file(number: int) -> str:
    return f"part-{number:05d}.json"


def pending(work: Work, folder: Path) -> list[int]:
    """Parts that are not finished."""
    return [n for n in range(len(work.parts)) if not (folder / _file(n)).exists()]


def compute(work: Work, folder: Path, place: World, reporter: Reporter) -> None:
    """Computes this rank's unfinished parts, each on disk before the next.

    Raises:
        ModelError: the model cannot be loaded, or does not fit.
        NotFiniteError: a loss is NaN or infinite.
    """
    import torch

    mine = range(place.rank, len(work.parts), place.size)
    todo = [number for number in mine if not (folder / _file(number)).exists()]
    if not todo:
        return
    torch.set_num_threads(work.job.threads)
    computer, sandbox = _computer(work), _sandbox(work)
    total = sum(len(batch) for number in todo for batch in work.parts[number])
    with reporter.progress("evaluate", total, "sequences") as advance:
        for number in todo:
            began = time.perf_counter()
            numbers: list[int] = []
            results: list[Any] = []
            for batch in work.parts[number]:
                results += _batch(work, batch, computer, sandbox)
                numbers += batch
                advance(len(batch))
            part = {"items": numbers, "results": results, "seconds": time.perf_counter() - began}
            artifacts.write_json(folder / _file(number), part)


def _computer(work: Work) -> Computer:
    job = work.job
    device = models.compute_device()
    dtype = models.resolve_dtype(job.settings.dtype, device)
    files = models.find_model(job.model)
    model = models.load_model(files, dtype=dtype, trust_remote_code=job.trust_remote_code)
    prompts = [item for item in work.read.items if item.kind == ANSWER]
    check_room(model, prompts, job.settings.new_tokens)
    return Computer(model, work.tokenizer, device, work.read.stops, job.settings.new_tokens)


def _sandbox(work: Work) -> Sandbox | None:
    settings = work.job.settings
    if not settings.run_code:
        return None
    return Sandbox.open(
        settings.code_seconds, settings.code_memory, allow_network=settings.allow_network
    )


def _batch(
    work: Work, batch: list[int], computer: Computer, sandbox: Sandbox | None
) -> list[list[float]] | list[dict[str, str]]:
    items = [work.read.items[number] for number in batch]
    if items[0].kind != ANSWER:
        return computer.losses(items)
    made: list[dict[str, str]] = []
    for item, answer in zip(items, computer.answers(items), strict=True):
        made.append({"answer": answer, **_outcome(work, item.row, answer, sandbox)})
    return made


def _outcome(work: Work, row: int, answer: str, sandbox: Sandbox | None) -> dict[str, str]:
    if sandbox is None:
        return {}
    example = work.dataset[row]
    setup = example.columns.get(work.job.settings.setup)
    before = f"{setup}\n" if isinstance(setup, str) else ""
    tests = before + read_tests(example, work.job.settings)
    return {"outcome": sandbox.run(program_of(answer), tests)}


def run_rank(folder: Path, place: World, reporter: Reporter) -> None:
    """The body of a launched rank."""
    job = Job.read(folder)
    assert job.dataset is not None
    with open_reference(job.dataset, None) as dataset:
        compute(Work.open(job, dataset), folder, place, reporter)
