"""What the ``datasets`` library does for us: hub names, folders it saved, splits of a folder.

Rows leave here as plain JSON objects. No code from a dataset is ever run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats.data.types import DataOptions
from formats.errors import DataError
from formats.fingerprints import digest, file_sha256

if TYPE_CHECKING:
    from datasets import Dataset


class NotOnHubError(Exception):
    """A name could not be loaded from the hub; the text is the library's own reason, one line."""


def open_hub(name: str, options: DataOptions) -> Dataset:
    """One split of a hub dataset, downloaded once and then taken from the library's cache.

    Raises:
        NotOnHubError: it cannot be found, reached or read.
        DataError: the split is not named and there are several.
    """
    import datasets

    try:
        loaded = datasets.load_dataset(name, options.subset, split=options.split)
    except Exception as error:  # the library raises a dozen unrelated classes here
        raise NotOnHubError(_first_line(error)) from None
    return _choose_split(name, loaded, options)


def open_folder(path: str, options: DataOptions) -> Dataset:
    """One split of a folder written by ``save_to_disk``.

    Raises:
        DataError: it cannot be read, or the split is not named, or not there.
    """
    import datasets

    try:
        loaded = datasets.load_from_disk(path)
    except Exception as error:  # as above
        raise DataError(f"{path} cannot be read as a saved dataset: {_first_line(error)}") from None
    return _choose_split(path, loaded, options)


def read_records(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """Rows as the Arrow table holds them, so that images and audio are not decoded."""
    for table in dataset.with_format("arrow").iter(batch_size=256):
        yield from table.to_pylist()


def hub_sha256(name: str, options: DataOptions) -> str:
    """Hash of the cached Arrow files, the subset and the split; loads the dataset if need be.

    Raises:
        NotOnHubError: as :func:`open_hub`.
        DataError: as :func:`open_hub`, or the library kept it in memory only.
    """
    dataset = open_hub(name, options)
    files = sorted(entry["filename"] for entry in dataset.cache_files)
    if not files:
        raise DataError(
            f"{name} is held in memory, where its content cannot be hashed",
            fix="unset HF_DATASETS_IN_MEMORY_MAX_SIZE",
        )
    return digest([options.subset, options.split, [file_sha256(file) for file in files]])


def folder_sha256(path: str, options: DataOptions) -> str:
    """Hash of the Arrow files of the folder, and of the split's name.

    Raises:
        DataError: a file cannot be read.
    """
    folder = Path(path)
    files = sorted(folder.rglob("*.arrow"))
    hashes = [[str(file.relative_to(folder)), file_sha256(file)] for file in files]
    return digest([options.split, hashes])


def files_of_folder(path: str, options: DataOptions) -> list[str]:
    """The files that make up one split of a folder of data files, by the library's own rules.

    Raises:
        DataError: no such split or subset, or files of a kind the library does not know.
    """
    import datasets

    try:
        found = datasets.load_dataset_builder(path, options.subset).config.data_files or {}
    except Exception as error:  # as above
        raise DataError(f"{path}: {_first_line(error)}") from None
    splits = {str(split): [str(file) for file in files] for split, files in found.items()}
    chosen = options.split or (next(iter(splits)) if len(splits) == 1 else None)
    if chosen not in splits:
        raise _no_split(path, options, sorted(splits))
    return sorted(
        os.path.join(path, os.path.relpath(f, os.path.realpath(path))) for f in splits[chosen]
    )


def _choose_split(name: str, loaded: Any, options: DataOptions) -> Dataset:
    import datasets

    if isinstance(loaded, datasets.Dataset):
        if options.split not in (None, str(loaded.split)):
            raise _no_split(name, options, [str(loaded.split)] if loaded.split else [])
        return loaded
    if not isinstance(loaded, datasets.DatasetDict):
        raise DataError(f"{name} is a {type(loaded).__name__}, not a table of rows")
    if options.split in loaded:
        return loaded[options.split]
    if options.split is None and len(loaded) == 1:
        return next(iter(loaded.values()))
    raise _no_split(name, options, sorted(map(str, loaded)))


def _no_split(name: str, options: DataOptions, splits: list[str]) -> DataError:
    known = ", ".join(splits) or "none"
    if options.split is None:
        return DataError(f"{name} has several splits ({known})", fix="choose one with --split")
    return DataError(
        f"{name} has no split {options.split!r} (splits: {known})", fix="change --split"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
