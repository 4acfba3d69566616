"""Checks of the two Zarr artifacts: every chunk, then what the numbers must fulfil."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from formats import blocks
from formats import clusters as maps
from formats import signatures as signs
from formats.artifacts import Header, read_header
from formats.errors import ArtifactError
from formats.fingerprints import digest

Kinds = Mapping[str, tuple[tuple[int | None, ...], str]]

# Rounding a unit row to float16 changes its length by less than 2^-11, half a unit in the last place.
_UNIT = 2e-3


def signatures(path: Path) -> str:
    """Checks a ``signatures.zarr``.

    Raises:
        ArtifactError: see ``stages.validate.validate``.
    """
    chunks = check_chunks(path, "signatures")
    source = signs.Signatures.open(path)
    rows, dims = source.rows, source.dims
    one, whole = (rows,), {"norm": "float32", "loss": "float32", "status": "uint8"}
    whole |= dict.fromkeys(("prompt_tokens", "response_tokens"), "int32")
    kinds: dict[str, tuple[tuple[int | None, ...], str]] = {
        "signature": ((rows, dims), "float16"),
        "example_id": ((rows, 16), "uint8"),
        **{name: (one, dtype) for name, dtype in whole.items()},
    }
    check_shapes(path, source.group, kinds)
    if source.space_id != digest(source.space):
        raise ArtifactError(f"{path / 'zarr.json'}: space_id is not the hash of space")
    status = source.column("status")
    _require(path, "status", status < len(signs.STATUS_NAMES), "is no status", status)
    ids, first = source.column("example_id"), status != signs.DUPLICATE
    if len(np.unique(ids[first], axis=0)) != first.sum():
        raise ArtifactError(f"{path}: array example_id: an id stands twice, not marked duplicate")
    usable = (status == signs.OK) | (status == signs.TRUNCATED)
    norm, loss, response = (source.column(n) for n in ("norm", "loss", "response_tokens"))
    _require(path, "norm", ~usable | (np.isfinite(norm) & (norm > 0)), "is no length", norm)
    _require(path, "loss", ~usable | (np.isfinite(loss) & (loss >= 0)), "is no loss", loss)
    _require(path, "response_tokens", ~usable | (response > 0), "is no length", response)
    counts = np.bincount(status, minlength=len(signs.STATUS_NAMES)).tolist()
    tokens = source.column("prompt_tokens").sum(dtype=np.int64) + response.sum(dtype=np.int64)
    found = {"status": dict(zip(signs.STATUS_NAMES, counts, strict=True)), "tokens": int(tokens)}
    if usable.any():
        found["mean_loss"] = float(loss[usable].mean())
    check_statistics(path, source.header, {"rows": rows, **found})
    _check_lengths(path, source, usable)
    return f"{rows:,} rows of {dims:,} numbers, {chunks:,} chunks"


def _check_lengths(path: Path, source: signs.Signatures, usable: np.ndarray) -> None:
    """Usable rows are unit vectors, the others are zero."""
    for part, block in source.stream():
        length = np.linalg.norm(block, axis=1)
        good = np.abs(length - usable[part]) < _UNIT
        if not good.all():
            at = int(np.flatnonzero(~good)[0])
            raise ArtifactError(
                f"{path}: array signature: row {part.start + at} has length {length[at]:.4f}, "
                f"not {int(usable[part][at])}"
            )


def clusters(path: Path) -> str:
    """Checks a ``clusters.zarr``.

    Raises:
        ArtifactError: see ``stages.validate.validate``.
    """
    chunks = check_chunks(path, "clusters")
    source = maps.Clusters.open(path)
    rows, count = source.rows, source.clusters
    kinds: dict[str, tuple[tuple[int | None, ...], str]] = {
        "centroid": ((count, None), "float32"),
        "centre": ((None,), "float32"),
        "example_id": ((rows, 16), "uint8"),
        **{name: ((rows,), dtype) for name, dtype in maps.ROW_ARRAYS.items()},
        **{name: ((count,), dtype) for name, dtype in maps.CLUSTER_ARRAYS.items()},
    }
    check_shapes(path, source.group, kinds)
    label, clustered = source.label, source.label >= 0
    size = np.bincount(label[clustered], minlength=count)
    _require(path, "size", source.size == size, f"is not the count of its rows {size}", source.size)
    tokens = np.bincount(
        label[clustered], weights=source.column("row_tokens")[clustered], minlength=count
    ).astype(np.int64)
    stored = source.column("tokens")
    _require(path, "tokens", stored == tokens, "is not the sum of its rows", stored)
    similarity = source.column("similarity")
    fits = np.isfinite(similarity) & (np.abs(similarity) < 1.001)
    _require(path, "similarity", fits, "is no cosine", similarity)
    mean = float(similarity[clustered].astype(np.float64).mean()) if clustered.any() else 0.0
    found = {"rows": rows, "clusters": count, "tokens": int(tokens.sum()), "mean_similarity": mean}
    check_statistics(path, source.header, found)
    length = np.linalg.norm(source.column("centroid").astype(np.float64), axis=1)
    _require(path, "centroid", np.abs(length - 1) < _UNIT, "is no unit vector", length)
    return f"{rows:,} rows in {count:,} clusters, {chunks:,} chunks"


def _require(path: Path, array: str, good: np.ndarray, problem: str, values: np.ndarray) -> None:
    if not good.all():
        at = int(np.flatnonzero(~good)[0])
        raise ArtifactError(f"{path}: array {array}: number {at} ({values[at]}) {problem}")


def check_statistics(path: Path, header: Header, found: Mapping[str, Any]) -> None:
    """The header's figures are those of the arrays: this finds what was changed or lost as a whole.

    Raises:
        ArtifactError: names the figure.
    """
    for name, value in found.items():
        said = header.stats.get(name, value)
        near = isinstance(value, float) and isinstance(said, float) and abs(said - value) < 1e-3
        if said != value and not near:
            raise ArtifactError(f"{path}: {name} is {value} by the arrays, the header says {said}")


def check_shapes(path: Path, group: Any, kinds: Kinds) -> None:
    """Every array is there with its shape and type.

    Args:
        kinds: name -> (shape, dtype); None stands for any length.

    Raises:
        ArtifactError: names the array.
    """
    for name, (shape, dtype) in kinds.items():
        if name not in group:
            raise ArtifactError(f"{path}: array {name} is missing")
        array = group[name]
        fits = len(array.shape) == len(shape) and all(
            wanted is None or got == wanted for got, wanted in zip(array.shape, shape, strict=True)
        )
        if not fits or str(array.dtype) != dtype:
            wanted = tuple("any" if length is None else length for length in shape)
            raise ArtifactError(
                f"{path / name}: holds {array.dtype} {tuple(array.shape)}, not {dtype} {wanted}"
            )


def check_chunks(path: Path, kind: str) -> int:
    """Reads every chunk of every array, which compares its checksum.

    Every chunk has a file, also one that holds the fill value alone: a lost one is an error.

    Returns:
        The number of chunks.

    Raises:
        ArtifactError: names the chunk's file; or see ``artifacts.read_header``.
    """
    read_header(path, kind)
    group = blocks.open_arrays(path)
    return sum(_check_array(path / name, group, name) for name in sorted(group.array_keys()))


def _check_array(folder: Path, group: Any, name: str) -> int:
    array = group[name]
    counts = [-(-n // c) for n, c in zip(array.shape, array.chunks, strict=True)]
    places = list(itertools.product(*map(range, counts)))
    for place in places:
        file = folder.joinpath("c", *map(str, place))
        if not file.is_file():
            raise ArtifactError(f"{file} is missing")
        try:
            blocks.read(group, name, *_rows(place, array.chunks))
        except ArtifactError as error:
            reason = re.sub(r"\s+", " ", str(error.__cause__))
            raise ArtifactError(f"{file} is damaged: {reason}") from error
    return len(places)


def _rows(place: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[slice]:
    """Chunks are never split along other axes than the first."""
    return (slice(place[0] * chunks[0], (place[0] + 1) * chunks[0]),)
