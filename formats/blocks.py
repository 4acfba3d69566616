"""Zarr arrays written block by block: what every Zarr artifact is made of.

One block of rows is one chunk along axis 0 in every array, so a block is written by one writer and a
damaged file costs one block. CRC32C is the only codec: dense float16 hardly compresses, and a flipped
bit must be found.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from formats.errors import ArtifactError
from formats.places import Url, explained

Shape = tuple[int, ...]


def create_group(
    path: Path, arrays: Mapping[str, tuple[Shape, str]], block: int, fills: Mapping[str, int] = {}
) -> Any:
    """A new Zarr v3 group whose arrays have their full, final size.

    Args:
        path: the folder; must not hold a group yet.
        arrays: name -> (shape, dtype).
        block: rows in a chunk along axis 0; other axes are never split.
        fills: name -> fill value, 0 where not named.

    Returns:
        The open ``zarr.Group``. Its attributes are empty: the header is written last, by ``seal``.
    """
    from zarr.codecs import Crc32cCodec

    group = _zarr().open_group(path, mode="w-", zarr_format=3)
    for name, (shape, dtype) in arrays.items():
        chunks = (max(1, min(block, shape[0])), *(max(1, size) for size in shape[1:]))
        group.create_array(
            name,
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            compressors=[Crc32cCodec()],
            fill_value=fills.get(name, 0),
        )
    return group


def seal(path: Path, header: Mapping[str, Any]) -> None:
    """Writes the header into the group's attributes: the last write, after which it is complete."""
    open_writable(path).attrs.put(dict(header))


def open_writable(path: Path) -> Any:
    """The group at ``path``, to write blocks of existing arrays."""
    return _zarr().open_group(path, mode="r+")


def open_arrays(path: Path, whole: bool = True) -> Any:
    """The group at ``path``, read only.

    Args:
        path: a folder or a URL.
        whole: a block that is not there is an error when it is read; otherwise it reads as the fill
            value, which is what an artifact under construction is full of.

    Raises:
        ArtifactError: zarr cannot open it.
    """
    try:
        return _zarr().open_group(_whole(path) if whole else path, mode="r")
    except ArtifactError:  # of a URL
        raise
    except Exception as error:
        raise ArtifactError(f"cannot open {path}: {error}") from error


def read(group: Any, name: str, rows: slice = slice(None)) -> np.ndarray:
    """Rows of one array.

    Raises:
        ArtifactError: the array is missing, or a chunk fails its checksum.
    """
    try:
        return np.asarray(group[name][rows])
    except ArtifactError:  # of a URL, or a lost block
        raise
    except Exception as error:
        place = str(group.store_path).removeprefix("file://")
        raise ArtifactError(
            f"{place}: array {name} cannot be read ({error})",
            fix="rebuild the artifact; a stored block is missing or damaged",
        ) from error


def _whole(path: Path) -> Any:
    """The store at a place, in which a block that is not there is an error and not all zeros."""
    from zarr.storage import FsspecStore, LocalStore

    remote = isinstance(path, Url)
    kind: Any = FsspecStore if remote else LocalStore

    class Whole(kind):
        async def get(self, key: str, *args: Any, **more: Any) -> Any:
            with explained(f"{path}/{key}") if remote else nullcontext():
                found = await super().get(key, *args, **more)
            if found is None and "/c/" in key:
                again = "copy the artifact again" if remote else "build it again with --force"
                raise ArtifactError(f"{path}/{key} is missing", fix=again)
            return found

    return Whole.from_url(str(path), read_only=True) if remote else Whole(path, read_only=True)


def _zarr() -> Any:
    """zarr, told to write chunks that hold nothing but the fill value: a lost file must be missed.

    It is a setting of the array object, not of the stored array, so it is made where zarr comes in.
    """
    import zarr

    zarr.config.set({"array.write_empty_chunks": True})
    return zarr
