"""Where every usable row stands on disk, so that memory does not grow with the text.

Rows of plain JSONL stay in their own file; all others are written once to an anonymous temporary
spool, one JSON text each. About 44 bytes of index a row are kept in memory.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from typing import IO, NamedTuple

import numpy as np

from formats.data.rows import ID_BYTES
from formats.errors import DataError

_MAX_OPEN = 128  # file handles kept; a dataset may have thousands of parts


class Place(NamedTuple):
    """Where a row came from: index of its source, and 1-based line."""

    source: int
    line: int


class RowStore:
    """Rows by number: ``add`` while reading, ``fetch`` ever after."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths
        self._sources = array("i")
        self._lines = array("q")
        self._offsets = array("q")  # in the source's own file; ~offset in the spool
        self._lengths = array("q")
        self._ids = bytearray()
        self._spool: IO[bytes] | None = None
        self._spooled = 0
        self._open: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, place: Place, data: bytes, offset: int, identity: bytes) -> None:
        """One more row; ``offset`` is where ``data`` stands in its file, or -1 to spool it.

        Raises:
            DataError: no room for the spool.
        """
        self._sources.append(place.source)
        self._lines.append(place.line)
        self._offsets.append(offset if offset >= 0 else ~self._spool_row(data))
        self._lengths.append(len(data))
        self._ids += identity

    def place(self, row: int) -> Place:
        """Where a row came from."""
        return Place(self._sources[row], self._lines[row])

    def rows_per_source(self) -> list[int]:
        """How many rows came from each source."""
        counts = np.bincount(np.asarray(self._sources, np.int64), minlength=len(self._paths))
        return [int(count) for count in counts]

    def identity(self, row: int) -> bytes:
        """A row's 16-byte id."""
        return bytes(self._ids[row * ID_BYTES : (row + 1) * ID_BYTES])

    def ids(self) -> np.ndarray:
        """All ids, (N, 16) uint8."""
        return np.frombuffer(bytes(self._ids), np.uint8).reshape(-1, ID_BYTES)

    def fetch(self, row: int) -> bytes:
        """A row's JSON, read from disk; safe in forked processes, which share the handles.

        Raises:
            DataError: the source cannot be opened any more.
        """
        offset, length = self._offsets[row], self._lengths[row]
        if offset < 0:
            assert self._spool is not None
            return os.pread(self._spool.fileno(), length, ~offset)
        return os.pread(self._handle(self._sources[row]), length, offset)

    def finish(self) -> None:
        """Everything is added: what is still buffered goes to the spool's file."""
        if self._spool is not None:
            self._flush()

    def close(self) -> None:
        """Closes all handles; the spool vanishes."""
        for handle in self._open.values():
            os.close(handle)
        self._open.clear()
        if self._spool is not None:
            self._spool.close()

    def _spool_row(self, data: bytes) -> int:
        if self._spool is None:
            self._spool = tempfile.TemporaryFile(buffering=1 << 20)  # noqa: SIM115 - see close
        try:
            self._spool.write(data)
        except OSError as error:
            raise _no_room(error) from error
        self._spooled += len(data)
        return self._spooled - len(data)

    def _flush(self) -> None:
        assert self._spool is not None
        try:
            self._spool.flush()
        except OSError as error:
            raise _no_room(error) from error

    def _handle(self, source: int) -> int:
        if source not in self._open:
            if len(self._open) >= _MAX_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            try:
                self._open[source] = os.open(self._paths[source], os.O_RDONLY)
            except OSError as error:
                path = self._paths[source]
                raise DataError(f"{path} cannot be opened again: {error.strerror}") from error
        return self._open[source]


def _no_room(error: OSError) -> DataError:
    return DataError(
        f"cannot keep unpacked rows in {tempfile.gettempdir()}: {error.strerror}",
        fix="set TMPDIR to a folder with more room",
    )
