"""From the names a user gives (files, globs, folders, Hugging Face names) to things to read.

Nothing is parsed here, so this is cheap enough for cache keys: names are resolved and contents
hashed, no more.
"""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from formats.data import hub
from formats.data.types import DataOptions
from formats.errors import DataError, SettingError
from formats.fingerprints import file_sha256

TEXT_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
TABLE_SUFFIXES = (".parquet", ".arrow", ".feather")
COMPRESSED_SUFFIXES = (".gz", ".zst")
SUFFIXES = (
    TEXT_SUFFIXES
    + TABLE_SUFFIXES
    + tuple(kind + packed for kind in TEXT_SUFFIXES for packed in COMPRESSED_SUFFIXES)
)
_READABLE = ".jsonl, .json, .csv, .tsv, .parquet, .arrow, and .gz or .zst of the first four"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SPLIT_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}


class Located(NamedTuple):
    """One thing to read: ``kind`` is ``file``, ``folder`` (saved by ``datasets``) or ``hub``."""

    kind: str
    path: str
    sha256: str


def locate(paths: Sequence[str], options: DataOptions) -> list[Located]:
    """Everything the names stand for, in order, with content hashes.

    Raises:
        DataError: a name stands for nothing, for nothing readable, or twice for the same file.
        SettingError: ``--split`` or ``--subset`` where nothing has splits or subsets.
    """
    if not paths:
        raise DataError("no data given", fix="name at least one file, folder or dataset")
    found: list[Located] = []
    seen: dict[str, str] = {}
    for path in paths:
        for item in _locate_one(path, options):
            real = os.path.realpath(item.path) if item.kind != "hub" else item.path
            if real in seen:
                raise DataError(
                    f"{item.path} is named twice and its rows would count twice",
                    fix="name every file once",
                )
            seen[real] = item.path
            found.append(item)
    return found


def is_saved_dataset(folder: Path) -> bool:
    """Whether ``datasets`` wrote this folder with ``save_to_disk``."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def _locate_one(path: str, options: DataOptions) -> Iterator[Located]:
    if path == "-":
        raise DataError(
            "'-' (standard input) can be read only once",
            fix="copy it to a file first and name that",
        )
    here = Path(path)
    if here.is_dir():
        yield from _locate_folder(path, options)
    elif here.exists():
        yield _file(path, options)
    elif glob.has_magic(path):
        matches = sorted(glob.glob(path, recursive=True))
        if not matches:
            raise DataError(f"no file matches {path!r}", fix="check the pattern and the folder")
        for match in matches:
            if os.path.isdir(match) and "**" in path:
                continue  # ``**`` yields every folder beside the files inside it
            yield from _locate_one(match, options)
    elif _HUB_NAME.fullmatch(path) and not path.endswith(SUFFIXES):
        yield Located("hub", path, content_sha256("hub", path, options))
    else:
        raise _missing(path)


def _file(path: str, options: DataOptions) -> Located:
    flag = "--split" if options.split else "--subset"
    if options.split or options.subset:
        raise SettingError(
            f"{flag} {options.split or options.subset} means nothing for the file {path}",
            fix=f"drop {flag}; it is for Hugging Face datasets and for folders",
        )
    if not path.lower().endswith(SUFFIXES):
        raise DataError(
            f"cannot tell from its name what {path} holds",
            fix=f"rename it; readable are {_READABLE}",
        )
    return Located("file", path, content_sha256("file", path, options))


def content_sha256(kind: str, path: str, options: DataOptions) -> str:
    """The content hash of one located thing.

    Raises:
        DataError: it cannot be read, or a hub dataset cannot be loaded.
    """
    if kind == "hub":
        return _hub_sha256(path, options)
    return hub.folder_sha256(path, options) if kind == "folder" else file_sha256(path)


def _hub_sha256(name: str, options: DataOptions) -> str:
    try:
        return hub.hub_sha256(name, options)
    except hub.NotOnHubError as error:
        raise DataError(
            f"{name} is not a file or folder here{_nearest(name)}, "
            f"and could not be loaded from the Hugging Face hub: {error}",
            fix="check the spelling, or the network",
        ) from None


def _locate_folder(path: str, options: DataOptions) -> Iterator[Located]:
    folder = Path(path)
    if is_saved_dataset(folder):
        yield Located("folder", path, content_sha256("folder", path, options))
        return
    if options.split or options.subset:
        files = hub.files_of_folder(path, options)
    else:
        files = _files_of_one_split(folder)
    for file in files:
        yield Located("file", file, content_sha256("file", file, options))


def _files_of_one_split(folder: Path) -> list[str]:
    """All data files of a folder, unless their names say that they are parts kept apart."""
    files = sorted(
        str(file)
        for file in folder.rglob("*")
        if file.is_file()
        and file.name.lower().endswith(SUFFIXES)
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
    if not files:
        raise DataError(f"{folder} holds no data file", fix=f"readable are {_READABLE}")
    splits = {_split_of(os.path.relpath(file, folder)) for file in files} - {None}
    if len(splits) > 1:
        names = ", ".join(sorted(str(split) for split in splits))
        raise DataError(f"{folder} holds several splits ({names})", fix="choose one with --split")
    return files


def _split_of(name: str) -> str | None:
    words = re.split(r"[^a-z]+", name.lower())
    for split, spellings in _SPLIT_WORDS.items():
        if any(word in spellings for word in words):
            return split
    return None


def _missing(path: str) -> DataError:
    return DataError(f"no such file: {path}{_nearest(path)}", fix="check the path")


def _nearest(path: str) -> str:
    """The names beside ``path`` that look like it."""
    folder, name = os.path.split(path)
    try:
        beside = sorted(os.listdir(folder or "."))
    except OSError:
        return ""
    near = difflib.get_close_matches(name, beside, n=3)
    return f" (near it: {', '.join(os.path.join(folder, one) for one in near)})" if near else ""
