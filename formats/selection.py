"""``selection.jsonl``: the chosen examples with their loss weights.

The first line is the common header; every other line is one example, by ascending row::

    {"row": 17, "id": "9f...", "cluster": 3, "weight": 1.25, "similarity": 0.8123, "tokens": 240}

``tokens`` counts prompt and response after truncation; ``similarity`` is the cosine to the
cluster's centroid. Weights are written with all their digits: sums over them are exact to float64.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np

from formats import artifacts
from formats.errors import ArtifactError
from formats.places import place

FIELDS = ("row", "id", "cluster", "weight", "similarity", "tokens")
_LINES_AT_ONCE = 20_000  # lines written, or parsed by Python's own JSON scanner, together
_BYTES_AT_ONCE = 32 << 20  # bytes read together
_SMALL = 1 << 20  # bytes; for less than that it does not pay to load pyarrow


@dataclass(frozen=True)
class Selection:
    """M chosen examples, by ascending row.

    Attributes:
        path: where it was read from.
        header: the common header.
        row: (M) int64, 0-based index in the dataset.
        id: (M, 16) uint8, the example's content hash.
        cluster: (M) int32, label in the cluster map.
        weight: (M) float64, positive; they average 1.
        similarity: (M) float32, cosine to the cluster's centroid.
        tokens: (M) int32, prompt and response tokens.
    """

    path: Path
    header: artifacts.Header
    row: np.ndarray
    id: np.ndarray
    cluster: np.ndarray
    weight: np.ndarray
    similarity: np.ndarray
    tokens: np.ndarray

    def __len__(self) -> int:
        return len(self.row)


def read_selection(path: str | os.PathLike[str]) -> Selection:
    """Reads and checks a selection.

    Memory: about 50 bytes per example, twice that for a moment; of a remote file, its bytes besides.

    Raises:
        ArtifactMissingError: nothing is there.
        ArtifactError: it is no selection, a line is malformed (file and line are named), rows are
            not ascending, a weight is not positive, or lines are missing at the end.
    """
    path = place(path)
    header = artifacts.read_header(path, "selection")
    parts: list[list[np.ndarray]] = []
    with path.open("rb") as stream:
        stream.readline()
        line = 2
        while data := stream.read(_BYTES_AT_ONCE):
            data += stream.readline()
            parts += [found] if (found := _fast(data)) else _slow(path, data, line)
            line += data.count(b"\n")
    columns = _joined(parts)
    _check_whole(path, header, columns[0])
    return Selection(path, header, *columns)


def write_selection(
    output: Path | TextIO, header: artifacts.Header, columns: dict[str, np.ndarray]
) -> None:
    """Writes a selection: atomically to a path, or straight to an open text stream.

    Args:
        output: where to; the caller holds the lock of a path.
        header: its ``stats["selected"]`` must be M: readers find a missing end by it.
        columns: one array per name of ``FIELDS``, as in ``Selection``, by ascending row.

    Raises:
        ArtifactError: the file cannot be written.
    """
    if not isinstance(output, Path):
        _write(output, header, columns)
        return
    with artifacts.atomic_file(output) as stream:
        _write(stream, header, columns)


def content_hash(path: Path) -> str:
    """SHA-256 (hex) of the example lines alone: the header's paths do not belong to the content."""
    with place(path).open("rb") as stream:
        stream.readline()
        digest = hashlib.sha256()
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _write(stream: TextIO, header: artifacts.Header, columns: dict[str, np.ndarray]) -> None:
    stream.write(json.dumps(header.to_json(), ensure_ascii=False, allow_nan=False) + "\n")
    for start in range(0, len(columns["row"]), _LINES_AT_ONCE):
        part = slice(start, start + _LINES_AT_ONCE)
        stream.write("".join(_lines({name: columns[name][part] for name in FIELDS})))


def _lines(part: dict[str, np.ndarray]) -> Iterator[str]:
    ids = hex_ids(part["id"])
    numbers = (part[name].tolist() for name in FIELDS if name != "id")
    for row, cluster, weight, similarity, tokens, name in zip(*numbers, ids, strict=True):
        yield (
            f'{{"row": {row}, "id": "{name}", "cluster": {cluster}, "weight": {weight!r}, '
            f'"similarity": {similarity:.6f}, "tokens": {tokens}}}\n'
        )


def hex_ids(ids: np.ndarray) -> list[str]:
    """(n, 16) uint8 -> n strings of 32 hexadecimal digits."""
    text = np.ascontiguousarray(ids, dtype=np.uint8).tobytes().hex()
    return [text[i : i + 32] for i in range(0, len(text), 32)]


def _joined(parts: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Each column in one piece; the parts are emptied on the way, to hold no column twice for long."""
    columns = []
    while parts and parts[0]:
        columns.append(np.concatenate([part.pop(0) for part in parts]))
    return columns or _empty()


def _fast(data: bytes) -> list[np.ndarray] | None:
    """Whole lines as arrays, parsed by pyarrow; None when there is the least doubt about them."""
    if len(data) < _SMALL:
        return None
    import pyarrow as pa
    from pyarrow import json as arrow_json

    kinds = (pa.int64(), pa.string(), pa.int32(), pa.float64(), pa.float64(), pa.int32())
    schema = pa.schema(list(zip(FIELDS, kinds, strict=True)))
    how = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = arrow_json.read_json(pa.BufferReader(data), parse_options=how)
    except pa.ArrowException:
        return None
    if len(table) != data.count(b"\n") or any(column.null_count for column in table.columns):
        return None
    row, cluster, weight, similarity, tokens = (
        _numbers(table.column(name).combine_chunks()) for name in FIELDS if name != "id"
    )
    ids = _bytes_of(table.column("id").combine_chunks())
    if ids is None:
        return None
    right = (
        min(row.min(), cluster.min()) >= 0
        and tokens.min() >= 1
        and (np.isfinite(weight) & (weight > 0)).all()
        and (np.abs(similarity) <= 1.01).all()
    )
    return [row, ids, cluster, weight, similarity.astype(np.float32), tokens] if right else None


def _numbers(array: Any) -> np.ndarray:
    """An arrow array of numbers as NumPy's; arrow's own way would load pandas."""
    values = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    return values[array.offset : array.offset + len(array)]


def _bytes_of(texts: Any) -> np.ndarray | None:
    """(n, 16) uint8 from n texts of 32 hexadecimal digits; None when one is something else."""
    _, ends, letters = texts.buffers()
    edges = np.frombuffer(ends, np.int32)[texts.offset :][: len(texts) + 1]
    if (np.diff(edges) != 32).any():
        return None
    try:
        raw = bytes.fromhex(letters[int(edges[0]) : int(edges[-1])].to_pybytes().decode("ascii"))
    except ValueError:
        return None
    return np.frombuffer(raw, np.uint8).reshape(-1, 16) if len(raw) == 16 * len(texts) else None


def _slow(path: Path, data: bytes, first: int) -> Iterator[list[np.ndarray]]:
    """Whole lines as arrays, by batches; an error names the line that is wrong."""
    stream = io.BytesIO(data)
    while lines := list(islice(stream, _LINES_AT_ONCE)):
        yield _columns(path, lines, first)
        first += len(lines)


def _columns(path: Path, lines: list[bytes], first: int) -> list[np.ndarray]:
    """One batch of lines as arrays; parsed as one JSON array, which is far faster than singly."""
    try:
        found = json.loads(b"[" + b",".join(lines) + b"]")
        if len(found) != len(lines) or not lines[-1].endswith(b"\n"):
            raise ValueError
        row, ids, cluster, weight, similarity, tokens = zip(
            *[tuple(item[name] for name in FIELDS) for item in found], strict=True
        )
        return [
            _integers(row, np.int64, 0),
            np.frombuffer(bytes.fromhex("".join(ids)), dtype=np.uint8).reshape(len(lines), 16),
            _integers(cluster, np.int32, 0),
            _floats(weight, np.float64, above=0.0),
            _floats(similarity, np.float32, above=-1.01, most=1.01),
            _integers(tokens, np.int32, 1),
        ]
    except (ValueError, KeyError, TypeError, OverflowError):
        _blame(path, lines, first)


def _integers(values: tuple[Any, ...], dtype: Any, least: int) -> np.ndarray:
    if not all(type(value) is int for value in values) or min(values) < least:
        raise ValueError
    return np.array(values, dtype=dtype)


def _floats(values: tuple[Any, ...], dtype: Any, above: float, most: float = np.inf) -> np.ndarray:
    if not all(type(value) in (int, float) for value in values):
        raise ValueError
    array = np.array(values, dtype=dtype)
    if not (np.isfinite(array) & (array > above) & (array <= most)).all():
        raise ValueError
    return array


def _blame(path: Path, lines: list[bytes], first: int) -> NoReturn:
    for number, line in enumerate(lines, first):
        if problem := _problem(line):
            raise ArtifactError(
                f"{path}:{number}: {problem}",
                fix=f"rebuild it with `cluster-cli select ... -o {path}`",
                line=number,
            )
    raise ArtifactError(f"{path}: lines {first} to {first + len(lines) - 1} cannot be read")


def _problem(line: bytes) -> str:
    """What is wrong with one line; empty when nothing is."""
    try:
        item = json.loads(line)
    except ValueError:
        return "not a JSON object" if line.endswith(b"\n") else "the line is cut short"
    if not isinstance(item, dict):
        return "not a JSON object"
    if not line.endswith(b"\n"):
        return "the line is cut short"
    if missing := [name for name in FIELDS if name not in item]:
        return f"no {', '.join(missing)}"
    for name, least in (("row", 0), ("cluster", 0), ("tokens", 1)):
        if type(item[name]) is not int or not least <= item[name] < 2**31:
            return f"{name} is {json.dumps(item[name])}, not an integer of at least {least}"
    if not (isinstance(item["id"], str) and len(item["id"]) == 32 and _is_hex(item["id"])):
        return f"id is {json.dumps(item['id'])}, not 32 hexadecimal digits"
    if type(item["weight"]) not in (int, float) or not 0 < item["weight"] < sys.float_info.max:
        return f"weight is {json.dumps(item['weight'])}, not a positive number"
    if type(item["similarity"]) not in (int, float) or not abs(item["similarity"]) <= 1.01:
        return f"similarity is {json.dumps(item['similarity'])}, not a cosine"
    return ""


def _is_hex(text: str) -> bool:
    return all(letter in "0123456789abcdef" for letter in text)


def _check_whole(path: Path, header: artifacts.Header, row: np.ndarray) -> None:
    fix = f"rebuild it with `cluster-cli select ... -o {path}`"
    if (descents := np.flatnonzero(np.diff(row) <= 0)).size:
        at = int(descents[0]) + 1
        raise ArtifactError(
            f"{path}:{at + 2}: row {row[at]} comes after row {row[at - 1]}; rows must ascend",
            fix=fix,
        )
    expected = header.stats.get("selected")
    if expected != len(row):
        raise ArtifactError(
            f"{path} holds {len(row)} examples, its header says {expected}", fix=fix
        )


def _empty() -> list[np.ndarray]:
    types = ("int64", "uint8", "int32", "float64", "float32", "int32")
    return [np.empty((0, 16) if name == "uint8" else 0, dtype=name) for name in types]
