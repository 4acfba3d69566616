"""Streams of raw rows out of columnar files: Parquet and Arrow, by way of pyarrow."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Iterator
from typing import Any

from formats.data.readers import Raw
from formats.errors import DataError

_BATCH_ROWS = 256


def read_parquet(path: str) -> Iterator[Raw]:
    """Rows of a Parquet file.

    Raises:
        DataError: not a Parquet file, or a broken one.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield from number_records(
                row for batch in file.iter_batches(_BATCH_ROWS) for row in batch.to_pylist()
            )
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {_first_line(error)}") from None


def read_arrow(path: str) -> Iterator[Raw]:
    """Rows of an Arrow IPC file, of the file or of the stream kind.

    Raises:
        DataError: not an Arrow file, or a broken one.
    """
    import pyarrow

    try:
        with pyarrow.memory_map(path) as file:
            yield from number_records(
                row
                for batch in _batches(file)
                for start in range(0, batch.num_rows, _BATCH_ROWS)
                for row in batch.slice(start, _BATCH_ROWS).to_pylist()
            )
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Arrow: {_first_line(error)}") from None


def number_records(rows: Iterator[dict[str, Any]]) -> Iterator[Raw]:
    """Rows as JSON, numbered from 1."""
    for number, row in enumerate(rows, 1):
        yield Raw(number, json.dumps(to_plain(row), ensure_ascii=True).encode("ascii"))


def to_plain(value: Any) -> Any:
    """What JSON can hold: dates in ISO form, decimals and other things as text, NaN as null.

    Bytes become text where they are UTF-8 and base64 where they are not.
    """
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, bytes):
        return _bytes_as_text(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return str(value) if not isinstance(value, decimal.Decimal) else format(value, "f")


def _batches(file: Any) -> Iterator[Any]:
    import pyarrow

    try:
        reader = pyarrow.ipc.open_file(file)
    except pyarrow.ArrowInvalid:
        file.seek(0)
        yield from pyarrow.ipc.open_stream(file)
        return
    for index in range(reader.num_record_batches):
        yield reader.get_batch(index)


def _bytes_as_text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
