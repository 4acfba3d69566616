"""Files that name examples: those to keep whatever the method says, and those to leave out.

One id (32 hexadecimal digits) or row number a line; blank lines, and whatever follows a ``#``, are
skipped. Either names a *content*, because rows of equal content are one example to the model:

* an excluded content goes with all its rows (leaving one copy in would exclude nothing);
* a content that must be included is included once, by the row named first, or its first row by id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from formats.clusters import Clusters
from formats.errors import DataError
from formats.signatures import STATUS_NAMES, as_keys

_ID = re.compile("[0-9a-f]{32}", re.IGNORECASE)


@dataclass(frozen=True)
class Lists:
    """What the files say of the map's N rows.

    Attributes:
        must: (N) bool, rows to select; one of each content at most.
        excluded: (N) bool, rows to leave out.
    """

    must: np.ndarray
    excluded: np.ndarray


def read_lists(clusters: Clusters, must_include: Path | None, exclude: Path | None) -> Lists:
    """Reads both files; without them nothing must be and nothing is left out.

    Raises:
        DataError: a file cannot be read; a line is no id or number, names nothing in the data, must be
            included but is not clustered, or stands in both files. The message has file and line.
    """
    must = np.zeros(clusters.rows, dtype=bool)
    excluded = np.zeros(clusters.rows, dtype=bool)
    if must_include is None and exclude is None:
        return Lists(must, excluded)
    book = _Book(clusters)
    out = {book.content(entry): entry for entry in _entries(exclude)}
    excluded = np.isin(book.content_N, list(out))
    done = set[int]()
    for entry in _entries(must_include):
        content = book.content(entry)
        if content in out:
            raise DataError(
                f"{entry.place}: {entry.text} is to be included, and excluded by {out[content].place}",
                fix="remove one of the two lines",
            )
        row = book.row(entry, content)
        if content not in done:
            must[row] = True
        done.add(content)
    return Lists(must, excluded)


@dataclass(frozen=True)
class _Entry:
    """One line that says something."""

    place: str  # file:line
    text: str


def _entries(path: Path | None) -> Iterator[_Entry]:
    if path is None:
        return
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text", fix="write one id or row a line") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if text := line.partition("#")[0].strip():
            yield _Entry(f"{path}:{number}", text)


class _Book:
    """Finds contents and rows of a map.

    Attributes:
        content_N: (N) int64, number of each row's content.
    """

    def __init__(self, clusters: Clusters) -> None:
        self.clusters = clusters
        keys = as_keys(clusters.column("example_id"))
        self._key_U, self.content_N = np.unique(keys, return_inverse=True)

    def content(self, entry: _Entry) -> int:
        """The content that a line names."""
        if _ID.fullmatch(entry.text):
            key = np.frombuffer(bytes.fromhex(entry.text), dtype="V16")
            place = int(np.searchsorted(self._key_U, key)[0])
            if place < len(self._key_U) and self._key_U[place] == key[0]:
                return place
            problem = f"no row has the id {entry.text}"
        elif not (entry.text.isascii() and entry.text.isdigit()):
            problem = f"{entry.text!r} is neither a row number nor an id of 32 hexadecimal digits"
        elif int(entry.text) < len(self.content_N):
            return int(self.content_N[int(entry.text)])
        else:
            problem = f"there is no row {entry.text}, the last one is {len(self.content_N) - 1}"
        raise DataError(
            f"{entry.place}: {problem}",
            fix=f"`cluster-cli inspect {self.clusters.path}` shows rows and their ids",
        )

    def row(self, entry: _Entry, content: int) -> int:
        """The clustered row that a line to be included names."""
        row = int(self._first[content]) if _ID.fullmatch(entry.text) else int(entry.text)
        if row < 0 or self.clusters.label[row] < 0:
            row = int(np.argmax(self.content_N == content)) if row < 0 else row
            status = STATUS_NAMES[self.clusters.column("status")[row]]
            raise DataError(
                f"{entry.place}: row {row} is not clustered ({status}) and cannot be included",
                fix="remove the line",
            )
        return row

    @cached_property
    def _first(self) -> np.ndarray:
        """(U) int64, the first clustered row of every content, -1 where there is none."""
        first_U = np.full(len(self._key_U), -1)
        rows = np.flatnonzero(self.clusters.label >= 0)[::-1]
        first_U[self.content_N[rows]] = rows
        return first_U
