"""export: the chosen rows in plan order, as other people's trainers read them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from formats import artifacts
from formats.allocation import Allocation
from formats.artifacts import Header, stage_key
from formats.errors import SettingError
from formats.fingerprints import file_sha256
from formats.kinds import artifact_path, find_kind
from formats.places import local, relative
from formats.selection import read_selection
from stages.export import order, tables
from stages.export.order import Places
from stages.export.rows import Facts, Rows, check, look, open_data
from stages.export.trainers import DATA, TRAINERS, Plan
from stages.reporting import Reporter, Silent

VERSION = 1
STDOUT: Literal["-"] = "-"


def export(
    source: Path | str,
    output: Path | str,
    *,
    to: str,
    data: Sequence[Path | str] = (),
    repeat: bool = False,
    copies: float = 1.0,
    seed: int = 0,
    epoch: int | None = None,
    deal: str = "batches",
    force: bool = False,
    reporter: Reporter = Silent(),
) -> Header:
    """Writes the original rows with all their columns, in plan order, plus ``weight``, ``cluster``, ``id``.

    For ``trl``, ``axolotl`` and ``llamafactory`` ``output`` is a folder: ``train.jsonl``, the settings the
    trainer needs to keep the order (no shuffling, no packing) and ``manifest.json``. For ``messages`` it
    is a JSONL file, for ``parquet`` a Parquet file. All but ``parquet`` also have the conversation in the
    columns that the trainer reads (``messages``, or ``prompt`` and ``completion``).

    A selection has no order: its rows come as they were in the data, and the trainer may shuffle them. An
    allocation's come so that a sequential sampler reproduces it, epoch after epoch
    (``stages.export.order``).

    Args:
        source: a ``selection.jsonl`` or an ``allocation/``.
        output: the folder or file to write; "-" writes the rows to stdout (not for ``parquet``).
        to: trl, axolotl, llamafactory, messages or parquet.
        data: where the data files are now, in the order given to score; empty: where they were.
        repeat: rows as often as their weight says instead of weights, for trainers without weights: a row
            of weight w comes ``copies * w`` times on average (``stages.export.order.repeat``).
        copies: of a row of weight 1, on average.
        seed: of the rounding.
        epoch: this epoch of an allocation alone, from 0.
        deal: how the trainer's sampler gives rows to ranks, ``batches`` or ``rows``; see ``order``.
        force: replace an existing file.
        reporter: hears messages and warnings.

    Returns:
        what ``manifest.json`` says; ``stats`` has ``rows``, ``steps`` and ``exact_steps``.

    Raises:
        SettingError: a value that cannot be, or an output that exists.
        ArtifactError: the source is neither a selection nor an allocation, or damaged.
        DataError: a data file is missing; or plain text and conversations are mixed.
        DataChangedError: a data file is not what it was; the message names it.
        OutputBusyError: another process writes the output.
    """
    if to not in TRAINERS:
        raise SettingError(f"to is {to!r}, it must be one of {', '.join(TRAINERS)}")
    if output == STDOUT and to == "parquet":
        raise SettingError("parquet cannot go to stdout", fix="name a file with -o")
    found = _read(artifact_path(source), deal, epoch)
    places = order.repeat(found.places, copies, seed) if repeat else found.places
    params: dict[str, Any] = {"to": to, "epoch": epoch, "deal": deal}
    params |= {"repeat": {"copies": copies, "seed": seed} if repeat else None}
    job = _Job(found, replace(found, places=places), to, params, str(output), force, reporter)
    with open_data(found.header, found.path.parent, tuple(map(str, data))) as dataset:
        check(places, dataset)
        facts = look(places, dataset)
        job.warn(facts)
        rows = Rows(places, dataset, TRAINERS[to].columns[facts.style])
        job.write(rows, facts)
    for old, new in rows.renamed.items():
        reporter.message(f"the data's own column {old} is now {new}")
    return job.header()


@dataclass(frozen=True)
class _Source:
    """A selection or an allocation, read."""

    path: Path
    header: Header
    places: Places
    shape: dict[str, int]


def _read(path: Path, deal: str, epoch: int | None) -> _Source:
    kind = find_kind(path)
    if kind == "allocation":
        plan = Allocation.open(path)
        shape = {name: getattr(plan, name) for name in ("ranks", "micro_batch", "accumulation")}
        return _Source(path, plan.header, order.of_allocation(plan, deal, epoch), shape)
    if kind != "selection":
        raise SettingError(
            f"{path} is of the kind {kind}", fix="export takes a selection or an allocation"
        )
    if epoch is not None:
        raise SettingError(f"{path} is a selection, it has no epochs", fix="leave --epoch out")
    selection = read_selection(path)
    return _Source(path, selection.header, order.of_selection(selection), {})


@dataclass(frozen=True)
class _Job:
    """One export on its way."""

    source: _Source
    made: _Source
    to: str
    params: dict[str, Any]
    output: str
    force: bool
    reporter: Reporter

    def warn(self, facts: Facts) -> None:
        """Says what the trainer will not do, and what was done for it."""
        trainer, places = TRAINERS[self.to], self.made.places
        if trainer.loses and (places.weight != 1).any():
            self.reporter.warn(trainer.loses)
        if facts.muted and facts.style not in trainer.obeys:
            self.reporter.warn(
                f"{facts.muted} rows have assistant turns of weight 0, which {self.to} learns all the same"
            )
        if self.params["repeat"]:
            self._say_repeated()
        elif places.ordered:
            self._say_order(places)

    def _say_repeated(self) -> None:
        before, after = self.source.places, self.made.places
        import numpy as np

        times = np.unique(after.row, return_counts=True)[1]
        left_out = len(np.unique(before.row)) - len(times)
        self.reporter.message(
            f"{len(before):,} rows become {len(after):,}: {left_out:,} are left out, one comes "
            f"{times.max()} times; the plan's steps are not kept"
        )

    def _say_order(self, places: Places) -> None:
        if places.exact_steps < places.steps - 1:
            self.reporter.warn(
                f"the plan's micro-batches have {self.source.shape['micro_batch']} rows up to step "
                f"{places.exact_steps} of {places.steps}, behind it a sampler deals rows out otherwise"
            )
        elif places.exact_steps < places.steps:
            self.reporter.message(
                f"step {places.exact_steps} of {places.steps}, the last, is partly filled; "
                "accelerate fills it up with rows from the beginning"
            )

    def write(self, rows: Rows, facts: Facts) -> None:
        """Writes what is asked for to where it is asked for."""
        files = TRAINERS[self.to].files
        if self.output == STDOUT:
            _write_lines(rows, sys.stdout)
            return
        output = local(self.output)
        if files:
            self._write_folder(output, rows, files(self._plan(facts)))
        else:
            self._write_file(output, rows)
        self.reporter.message(f"{output}: {len(rows):,} rows for {self.to}")

    def _write_folder(self, output: Path, rows: Rows, files: dict[str, str]) -> None:
        with artifacts.locked(output.absolute()):
            folder = artifacts.fresh_partial(output.absolute())
            with artifacts.atomic_file(folder / DATA) as stream:
                _write_lines(rows, stream)
            for name, text in files.items():
                with artifacts.atomic_file(folder / name) as stream:
                    stream.write(text)
            artifacts.write_json(folder / "manifest.json", self.header().to_json())
            artifacts.commit(output.absolute())

    def _write_file(self, output: Path, rows: Rows) -> None:
        if output.exists() and not self.force:
            raise SettingError(f"{output} exists", fix="name another with -o, or add --force")
        output.absolute().parent.mkdir(parents=True, exist_ok=True)
        with artifacts.atomic_file(output) as stream:
            if self.to != "parquet":
                _write_lines(rows, stream)
                return
            if as_text := tables.write(rows, stream.buffer):
                names = ", ".join(as_text)
                self.reporter.message(f"without a type of their own, written as JSON text: {names}")

    def _plan(self, facts: Facts) -> Plan:
        length = self.source.header.extra.get("rendering", {}).get("max_length")
        return Plan(self.output, facts, self.made.places.ordered, self.source.shape, length)

    def header(self) -> Header:
        """What was made, from what."""
        source, places = self.source, self.made.places
        folder = Path(self.output).absolute().parent
        stamp = artifacts.stamp(source.path, "allocation" if source.shape else "selection")
        return Header(
            kind="export",
            key=stage_key("export", VERSION, params=self.params, inputs=source.header.key),
            params=self.params,
            inputs=[
                {
                    "path": relative(source.path, folder),
                    "sha256": file_sha256(stamp),
                    "rows": len(source.places),
                }
            ],
            stats={
                "rows": len(places),
                "steps": places.steps,
                "exact_steps": places.exact_steps,
            },
        )


def _write_lines(rows: Iterable[dict[str, Any]], stream: IO[str]) -> None:
    for row in rows:
        stream.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
