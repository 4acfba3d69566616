"""``allocation/``: which rank takes which example at which step.

One file per rank, ``rank-00000.jsonl`` and so on, one line per micro-batch, in training order::

    {"epoch": 0, "step": 12, "micro": 0, "rows": [17], "ids": ["9f..."], "weights": [1.25],
     "clusters": [3], "tokens": [240]}

``step`` counts from 0 over the whole run. Every rank has the same number of lines; in an epoch's
last step lines may hold fewer rows, or none. With a budget of tokens the number of rows differs from
line to line. ``manifest.json`` is written last and holds the common header, the shape of the plan, and
each file's SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from formats import artifacts
from formats.errors import ArtifactError, SettingError
from formats.places import place

_SHAPE = ("ranks", "micro_batch", "accumulation", "epochs", "steps_per_epoch")
_LISTS: dict[str, type | tuple[type, ...]] = {
    "rows": int,
    "ids": str,
    "weights": (int, float),
    "clusters": int,
    "tokens": int,
}


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one rank takes through the model at once; the lists run in parallel and may be empty.

    Attributes:
        epoch: pass over the selection, from 0.
        step: optimizer step, from 0 over the whole run.
        micro: position inside the step's accumulation, from 0.
        rows: rows of the dataset.
        ids: their content hashes, hexadecimal.
        weights: their loss weights.
        clusters: their clusters.
        tokens: their lengths in tokens, prompt and response.
    """

    epoch: int
    step: int
    micro: int
    rows: list[int]
    ids: list[str]
    weights: list[float]
    clusters: list[int]
    tokens: list[int]


@dataclass(frozen=True)
class Allocation:
    """A complete allocation, opened for reading.

    Attributes:
        path: the folder.
        header: the common header; ``extra`` holds the shape, ``files``, ``rendering``, ``space``.
    """

    path: Path
    header: artifacts.Header

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Allocation:
        """Opens and checks the manifest; the files are checked when they are read.

        Raises:
            ArtifactMissingError, ArtifactError: see ``artifacts.read_header``; or the manifest does
                not say the plan's shape.
        """
        path = place(path)
        header = artifacts.read_header(path, "allocation")
        for name in _SHAPE:
            value = header.extra.get(name)
            if type(value) is not int or value < 1:
                raise ArtifactError(
                    f"{path / 'manifest.json'}: {name} is {json.dumps(value)}, not positive",
                    fix=_rebuild(path),
                )
        return cls(path, header)

    @property
    def ranks(self) -> int:
        """Data-parallel workers the plan is made for."""
        return self.header.extra["ranks"]

    @property
    def micro_batch(self) -> int:
        """Rows in a full micro-batch; with a budget of tokens, on average (a whole number)."""
        return self.header.extra["micro_batch"]

    @property
    def most_rows(self) -> int:
        """Rows that no micro-batch exceeds."""
        return self.header.extra.get("most_rows", self.micro_batch)

    @property
    def batch(self) -> float:
        """B, the constant denominator of the loss (DESIGN section 6): the examples of a full step. With
        a budget of tokens, examples of an epoch over its steps, which is no whole number.
        """
        return self.header.extra.get("batch", self.ranks * self.accumulation * self.micro_batch)

    @property
    def accumulation(self) -> int:
        """Micro-batches per optimizer step."""
        return self.header.extra["accumulation"]

    @property
    def epochs(self) -> int:
        """Passes over the selection."""
        return self.header.extra["epochs"]

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one epoch."""
        return self.header.extra["steps_per_epoch"]

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.epochs * self.steps_per_epoch

    def rank(self, rank: int, from_step: int = 0) -> Iterator[MicroBatch]:
        """One rank's micro-batches in order, read as they are asked for.

        Args:
            rank: 0 <= rank < ranks.
            from_step: where to begin, for a run that is resumed.

        Raises:
            SettingError: there is no such rank.
            ArtifactError: the file is missing, was changed since it was written, or has a line that
                is malformed or out of place (file and line are named).
        """
        if not 0 <= rank < self.ranks:
            raise SettingError(
                f"the allocation {self.path} has no rank {rank}",
                fix=f"it was made for {self.ranks} ranks, 0 to {self.ranks - 1}",
            )
        file = self.path / rank_file(rank)
        self._check_file(file, rank)
        for batch in self._lines(file):
            if batch.step >= from_step:
                yield batch

    def _lines(self, file: Path) -> Iterator[MicroBatch]:
        expected = self.steps * self.accumulation
        number = 0
        with file.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                yield _parse(file, number, line, self._place(number - 1), self.most_rows)
        if number != expected:
            raise ArtifactError(
                f"{file} has {number} lines, not {expected}", fix=_rebuild(self.path)
            )

    def _place(self, index: int) -> tuple[int, int, int]:
        """Epoch, step and micro of a file's line."""
        step, micro = divmod(index, self.accumulation)
        return step // self.steps_per_epoch, step, micro

    def _check_file(self, file: Path, rank: int) -> None:
        try:
            with file.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            expected = self.header.extra["files"][rank]["sha256"]
        except FileNotFoundError:
            raise ArtifactError(f"{file} is missing", fix=_rebuild(self.path)) from None
        except (KeyError, IndexError, TypeError):
            raise ArtifactError(
                f"{self.path / 'manifest.json'} has no checksum of {file.name}",
                fix=_rebuild(self.path),
            ) from None
        if found != expected:
            for _ in self._lines(file):  # a malformed line says more than a checksum does
                pass
            raise ArtifactError(
                f"{file} was changed after it was written (its checksum differs)",
                fix=_rebuild(self.path),
            )


def rank_file(rank: int) -> str:
    """Name of a rank's file inside the folder."""
    return f"rank-{rank:05d}.jsonl"


def write_rank(folder: Path, rank: int, lines: Iterable[str | bytes]) -> dict[str, Any]:
    """Writes one rank's file; gives its entry for the manifest's ``files``.

    Args:
        folder: the folder being built (``<output>.partial``).
        rank: whose file.
        lines: complete lines, each with its line end, one or many at a time; see ``line``, ``lines``.
    """
    digest = hashlib.sha256()
    count = 0
    with open(folder / rank_file(rank), "wb") as stream:
        for text in lines:
            data = text.encode("ascii") if isinstance(text, str) else text
            digest.update(data)
            stream.write(data)
            count += data.count(b"\n")
        stream.flush()
        os.fsync(stream.fileno())
    return {"name": rank_file(rank), "sha256": digest.hexdigest(), "lines": count}


def lines(
    places: tuple[np.ndarray, np.ndarray, np.ndarray],
    sizes: np.ndarray,
    columns: Mapping[str, np.ndarray],
) -> bytes:
    """Many micro-batches as they are written, the same bytes as ``line`` gives, some 30 times faster.

    Args:
        places: epoch, step and micro, (n) integers each.
        sizes: (n) rows of each micro-batch.
        columns: of all their rows in turn, ``row``, ``id``, ``weight``, ``cluster`` and ``tokens`` as
            in ``formats.selection.Selection``.
    """
    import pyarrow as pa
    from pyarrow import compute

    edges = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    quoted = np.full((len(columns["id"]), 34), ord('"'), dtype=np.uint8)
    digits = np.ascontiguousarray(columns["id"]).tobytes().hex().encode("ascii")
    quoted[:, 1:33] = np.frombuffer(digits, dtype=np.uint8).reshape(-1, 32)
    values, which = np.unique(columns["weight"], return_inverse=True)

    def number(array: np.ndarray) -> Any:
        return pa.array(array).cast(pa.string())

    def joined(texts: Any) -> Any:
        return compute.binary_join(pa.ListArray.from_arrays(edges, texts), ", ")

    epoch, step, micro = (number(place) for place in places)
    text = compute.binary_join_element_wise(
        *('{"epoch": ', epoch, ', "step": ', step, ', "micro": ', micro),
        *(', "rows": [', joined(number(columns["row"]))),
        *('], "ids": [', joined(_fixed_width(quoted))),
        *('], "weights": [', joined(pa.array(map(repr, values.tolist()), pa.string()).take(which))),
        *('], "clusters": [', joined(number(columns["cluster"]))),
        *('], "tokens": [', joined(number(columns["tokens"])), "]}\n"),
        "",
    )
    _, ends, letters = text.buffers()
    return letters.slice(0, int(np.frombuffer(ends, np.int32)[len(text)])).to_pybytes()


def _fixed_width(letters: np.ndarray) -> Any:
    """(n, w) uint8 letters as n texts."""
    import pyarrow as pa

    count, width = letters.shape
    edges = np.arange(count + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(count, pa.py_buffer(edges), pa.py_buffer(letters))


def line(
    place: tuple[int, int, int],
    rows: list[int],
    ids: list[str],
    weights: list[float],
    clusters: list[int],
    tokens: list[int],
) -> str:
    """One micro-batch as it is written. ``place`` is (epoch, step, micro)."""
    epoch, step, micro = place
    names = '", "'.join(ids)
    # The representations of lists of Python numbers are JSON already.
    return (
        f'{{"epoch": {epoch}, "step": {step}, "micro": {micro}, "rows": {rows}, '
        f'"ids": {f"""["{names}"]""" if ids else "[]"}, "weights": {weights}, '
        f'"clusters": {clusters}, "tokens": {tokens}}}\n'
    )


def _rebuild(path: Path) -> str:
    return f"rebuild it with `cluster-cli allocate ... -o {path}`"


def _parse(
    file: Path, number: int, line: bytes, place: tuple[int, int, int], most: int
) -> MicroBatch:
    problem = ""
    try:
        item = json.loads(line)
        batch = MicroBatch(**item)
    except ValueError:
        problem = "not a JSON object" if line.endswith(b"\n") else "the line is cut short"
    except TypeError:
        problem = "not a micro-batch"
    if not problem:
        problem = _problem(batch, place, most)
    if problem:
        raise ArtifactError(f"{file}:{number}: {problem}", fix=_rebuild(file.parent), line=number)
    return batch


def _problem(batch: MicroBatch, place: tuple[int, int, int], most: int) -> str:
    """What is wrong with a micro-batch; empty when nothing is."""
    got = (batch.epoch, batch.step, batch.micro)
    if got != place:
        return f"epoch, step, micro are {list(got)}, not {list(place)}"
    for name, kind in _LISTS.items():
        values = getattr(batch, name)
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            return f"{name} is not a list of {'strings' if kind is str else 'numbers'}"
        if len(values) != len(batch.rows):
            return f"{len(batch.rows)} rows but {len(values)} {name}"
    if len(batch.rows) > most:
        return f"{len(batch.rows)} rows in a micro-batch of {most}"
    for weight in batch.weights:
        if not 0 < weight < float("inf"):
            return f"weight is {weight}, not a positive number"
    return ""
