"""Rows of any shape as one Parquet file, written piece by piece."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO, Any

Row = dict[str, Any]
_ROWS_AT_ONCE = 1024


def write(rows: Iterable[Row], stream: IO[bytes]) -> list[str]:
    """Writes rows to an open file; goes through them twice.

    A column that has no type of its own (numbers here, texts or lists there; objects without keys) is
    written as JSON text.

    Returns:
        names of the columns that are.
    """
    import pyarrow.parquet

    schema, as_text = _schema(rows)
    with pyarrow.parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        for part in _parts(rows):
            columns = [
                pyarrow.array(_column(part, field.name, field.name in as_text), field.type)
                for field in schema
            ]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
    return as_text


def _schema(rows: Iterable[Row]) -> tuple[Any, list[str]]:
    """The type of every column, by order of appearance, and the columns without one."""
    import pyarrow

    types: dict[str, Any] = {}
    for part in _parts(rows):
        for name in dict.fromkeys(name for row in part for name in row):
            known = types.get(name, pyarrow.null())
            types[name] = None if known is None else _joined(known, _column(part, name, False))
    as_text = [name for name, kind in types.items() if kind is None]
    fields = [
        (n, pyarrow.string() if kind in (None, pyarrow.null()) else kind)
        for n, kind in types.items()
    ]
    return pyarrow.schema(fields), as_text


def _joined(known: Any, values: list[Any]) -> Any:
    """The type that holds both; None without one."""
    import pyarrow

    try:
        here = pyarrow.array(values).type
        schemas = [pyarrow.schema([("x", kind)]) for kind in (known, here)]
        joined = pyarrow.unify_schemas(schemas, promote_options="permissive").field("x").type
    except (pyarrow.ArrowException, OverflowError):
        return None
    return None if _has_empty(joined) else joined


def _has_empty(kind: Any) -> bool:
    """Whether an object without keys is in it, which Parquet cannot hold."""
    import pyarrow.types

    inside = [kind.field(number).type for number in range(kind.num_fields)]
    return (pyarrow.types.is_struct(kind) and not inside) or any(map(_has_empty, inside))


def _column(part: list[Row], name: str, as_text: bool) -> list[Any]:
    values = [row.get(name) for row in part]
    if not as_text:
        return values
    return [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]


def _parts(rows: Iterable[Row]) -> Iterator[list[Row]]:
    iterator = iter(rows)
    while part := list(islice(iterator, _ROWS_AT_ONCE)):
        yield part
