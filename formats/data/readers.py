"""Streams of raw rows out of text files: JSON lines, JSON documents, CSV.

A reader yields ``Raw`` records: the bytes of one row as JSON, and where it stands. It never holds
more than one row (a JSON object that wraps an array is the exception), and it leaves judging the
bytes to ``rows.parse``. What makes the rest of a file unreadable is a ``DataError``.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterator
from typing import IO, Any, BinaryIO, NamedTuple, cast

from formats.data.shapes import CHAT_FIELDS, detect
from formats.data.types import BadRow
from formats.errors import DataError

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_LFS = b"version https://git-lfs.github.com/spec/"
_BOM = b"\xef\xbb\xbf"
_UNPACKING_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)


class Raw(NamedTuple):
    """One row before it is parsed.

    Attributes:
        line: 1-based line, or record number where a file has no lines.
        data: the row's JSON, in bytes.
        offset: where these bytes stand in the file as it is, -1 where they do not (compressed).
        problem: why there is no row here, if the reader itself could not make one.
    """

    line: int
    data: bytes
    offset: int = -1
    problem: str | None = None


def read_text_file(path: str) -> Iterator[Raw]:
    """Rows of a JSON, JSONL, CSV or TSV file, packed or not; content decides over the name.

    Raises:
        DataError: unreadable, packed wrongly, UTF-16, a Git LFS pointer, or broken JSON or CSV.
    """
    try:
        with open_unpacked(path) as (stream, packed):
            _refuse_foreign(path, stream)
            name = path.lower().removesuffix(".gz").removesuffix(".zst")
            if name.endswith((".csv", ".tsv")):
                yield from read_csv(path, stream, "\t" if name.endswith(".tsv") else ",")
                return
            layout = _layout(stream, name)
        with open_unpacked(path) as (stream, packed):
            if layout == "lines":
                yield from read_lines(stream, packed)
            elif layout == "array":
                yield from read_array(path, stream)
            else:
                yield from read_object(path, stream)
    except _UNPACKING_ERRORS as error:
        raise DataError(f"{path} cannot be decompressed: {error}", fix="copy it again") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{path} cannot be read: {reason}") from None


class open_unpacked:  # noqa: N801 - used as ``with open_unpacked(...)``, like ``open``
    """Context of (binary stream, whether it had to be decompressed), by the file's first bytes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> tuple[io.BufferedReader, bool]:
        self._file = open(self._path, "rb")
        head = self._file.peek(4)[:4]
        self._stream: Any = self._file
        if head.startswith(_GZIP):
            self._stream = io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=self._file)))
        elif head == _ZSTD:
            import pyarrow

            unpacked = pyarrow.CompressedInputStream(pyarrow.PythonFile(self._file), "zstd")
            self._stream = io.BufferedReader(unpacked)
        return self._stream, self._stream is not self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_lines(stream: BinaryIO, packed: bool) -> Iterator[Raw]:
    """JSON lines; blank ones are passed over, CRLF and a final line without an end are fine."""
    offset = 0
    for number, line in enumerate(stream, 1):
        if line.strip(b" \t\r\n" + _BOM):
            yield Raw(number, line, -1 if packed else offset)
        offset += len(line)


def read_array(path: str, stream: BinaryIO) -> Iterator[Raw]:
    """Elements of one JSON array, one at a time.

    Raises:
        DataError: the array is broken; the message counts the elements that could be read.
    """
    scanner = _Scanner(stream)
    number = 0
    try:
        scanner.take("[")
        mark = scanner.take("]") if scanner.peek() == "]" else ","
        while mark == ",":
            yield Raw(number + 1, scanner.value().encode("utf-8", "surrogateescape"))
            number += 1
            mark = scanner.take(",]")
        if scanner.peek():
            raise ValueError("something follows the closing bracket")
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", str(error))
        raise DataError(
            f"{path} is not valid JSON after element {number}: {reason}",
            fix="repair it there, or write one JSON object a line (.jsonl)",
        ) from None


def read_object(path: str, stream: BinaryIO) -> Iterator[Raw]:
    """A document that is one object: a single row, or a wrapper around one array of rows.

    Raises:
        DataError: broken JSON, or several arrays of rows to choose from.
    """
    data = stream.read()
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or getattr(error, "reason", None) or str(error)
        where = f"{path}:{error.lineno}" if isinstance(error, json.JSONDecodeError) else path
        raise DataError(f"{where}: not valid JSON: {reason}", fix="repair it there") from None
    arrays = [key for key, rows in value.items() if _is_rows(rows)]
    if detect(value) and not any(_is_rows(value.get(key)) for key in CHAT_FIELDS):
        arrays = []  # a row by itself, whose tools or metadata happen to be a list of objects
    if len(arrays) > 1:
        raise DataError(
            f"{path} holds several arrays of rows ({', '.join(arrays)})",
            fix="write the one you mean to a file of its own",
        )
    if not arrays:
        yield Raw(1, data)
    for number, row in enumerate(value[arrays[0]] if arrays else [], 1):
        yield Raw(number, json.dumps(row).encode("ascii"))


def read_csv(path: str, stream: BinaryIO, delimiter: str) -> Iterator[Raw]:
    """Rows of a table with a header, as objects of strings.

    Raises:
        DataError: the header is missing, repeats a name, or was split at the wrong character.
    """
    csv.field_size_limit(sys.maxsize)
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    table = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        header = next(table, None)
    except csv.Error as error:
        raise DataError(f"{path}:1: the header is not valid CSV: {error}") from None
    if header is None:
        return
    _check_header(path, header, delimiter)
    while True:
        line = table.line_num + 1
        try:
            cells = next(table, None)
            if cells is None:
                return
            if cells:
                yield Raw(line, _table_row(header, cells))
        except (csv.Error, BadRow) as error:
            yield Raw(line, b"", problem=f"not valid CSV: {error}")


def _table_row(header: list[str], cells: list[str]) -> bytes:
    if len(cells) != len(header):
        raise BadRow(f"{len(cells)} cells where the header has {len(header)}")
    row = json.dumps(dict(zip(header, cells, strict=True)), ensure_ascii=False)
    return row.encode("utf-8", "surrogateescape")  # bytes that are no UTF-8 come out as they were


def _check_header(path: str, header: list[str], delimiter: str) -> None:
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DataError(
            f"{path}:1: the header names {', '.join(map(repr, twice))} twice", fix="rename a column"
        )
    other = next((mark for mark in ";\t|," if mark != delimiter and mark in header[0]), None)
    if len(header) == 1 and other:
        raise DataError(
            f"{path}:1: the header is one column, {header[0]!r}, split by {other!r}",
            fix="save it with commas as .csv, or with tabs as .tsv",
        )


def _is_rows(value: object) -> bool:
    """A list of objects that are not themselves the turns of one conversation."""
    if not isinstance(value, list) or not value or not all(isinstance(v, dict) for v in value):
        return False
    first = value[0]
    return not (("role" in first and "content" in first) or ("from" in first and "value" in first))


def _refuse_foreign(path: str, stream: io.BufferedReader) -> None:
    head = stream.peek(64)[:64]
    if head.startswith(_UTF16):
        raise DataError(
            f"{path} is UTF-16, not UTF-8",
            fix=f"convert it: iconv -f UTF-16 -t UTF-8 {path} > utf8.jsonl",
        )
    if head.startswith(_LFS):
        raise DataError(f"{path} is a Git LFS pointer, not the data", fix="run: git lfs pull")
    if head.startswith(b"PAR1"):
        raise DataError(f"{path} is a Parquet file", fix="rename it to end in .parquet")


def _layout(stream: IO[bytes], name: str) -> str:
    """``lines``, ``array`` or ``object``: names lie often enough that the first line decides."""
    first = b""
    while not first.strip(b" \t\r\n" + _BOM):
        first = stream.readline(_SNIFF_BYTES)
        if not first:
            return "lines"
    text = first.removeprefix(_BOM).strip()
    whole, more = _parses(text), bool(stream.read(1024).strip())
    lines_by_name = name.endswith((".jsonl", ".ndjson"))
    if text.startswith(b"["):
        return "lines" if lines_by_name and whole and more else "array"
    if not text.startswith(b"{"):
        return "lines"
    if whole:
        return "lines" if more or lines_by_name else "object"
    if text.endswith((b"{", b"[", b",")):
        return "object"
    return "object" if len(first) == _SNIFF_BYTES and not lines_by_name else "lines"


_SNIFF_BYTES = 1 << 20


def _parses(text: bytes) -> bool:
    try:
        json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return True


class _Scanner:
    """Walks through JSON text that arrives in pieces; undecodable bytes become surrogates."""

    _PIECE = 1 << 20
    _SPACE = " \t\r\n"

    def __init__(self, stream: BinaryIO) -> None:
        self._text = io.TextIOWrapper(
            cast(IO[bytes], stream), encoding="utf-8-sig", errors="surrogateescape", newline=""
        )
        self._piece = ""
        self._at = 0
        self._ended = False

    def peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            while self._at < len(self._piece):
                if self._piece[self._at] not in self._SPACE:
                    return self._piece[self._at]
                self._at += 1
            if not self._more():
                return ""

    def take(self, allowed: str) -> str:
        """The next character, which must be one of ``allowed``."""
        mark = self.peek()
        if not mark:
            raise ValueError("the file ends in the middle of the array")
        if mark not in allowed:
            raise ValueError(f"expected {' or '.join(map(repr, allowed))}, found {mark!r}")
        self._at += 1
        return mark

    def value(self) -> str:
        """The text of the next JSON value."""
        if not self.peek():
            raise ValueError("the file ends in the middle of the array")
        while True:
            try:
                _, end = _RAW_DECODER.raw_decode(self._piece, self._at)
                if end < len(self._piece) or self._ended:  # otherwise a number could go on
                    break
            except json.JSONDecodeError:
                if self._ended:
                    raise
            self._more()
        start, self._at = self._at, end
        return self._piece[start:end]

    def _more(self) -> bool:
        """Another piece, at least as large as what is still unread, so that work stays linear."""
        rest = self._piece[self._at :]
        piece = self._text.read(max(self._PIECE, len(rest)))
        self._piece, self._at, self._ended = rest + piece, 0, not piece
        return bool(piece)


_RAW_DECODER = json.JSONDecoder()
