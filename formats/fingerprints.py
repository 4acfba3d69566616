"""Content hashes, and the keys built from them.

A key says what a result depends on and nothing else: equal key, equal result. Paths, devices, batch
sizes and rank counts are never part of one. What cannot be hashed is an error, never a random value.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from formats.errors import DataError
from formats.places import Url, place


def canonical_json(value: Any) -> bytes:
    """The one JSON spelling of ``value``: sorted keys, no spaces, UTF-8, no NaN.

    Raises:
        TypeError: ``value`` holds something JSON cannot hold.
        ValueError: ``value`` holds NaN or an infinity.
    """
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")


def digest(value: Any) -> str:
    """SHA-256 (hex) of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def file_sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 (hex) of a file's bytes.

    Remembered in the user's cache folder under (real path, size, modification time, inode), because
    hashing a 14 GB model takes longer than the three seconds in which an unchanged stage must end.

    Raises:
        DataError: the file cannot be read.
    """
    if isinstance(url := place(path), Url):
        return hashlib.sha256(url.read_bytes()).hexdigest()
    real = os.path.realpath(path)
    try:
        stat = os.stat(real)
        mark = digest([real, stat.st_size, stat.st_mtime_ns, stat.st_ino])
        remembered = _cache_folder() / mark[:2] / mark
        if stat.st_size >= _WORTH_REMEMBERING and remembered.exists():
            text = remembered.read_text().strip()
            if len(text) == 64:
                return text
        with open(real, "rb") as file:
            result = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if stat.st_size >= _WORTH_REMEMBERING:
        _remember(remembered, result)
    return result


def files_sha256(folder: Path, names: Iterable[str]) -> str:
    """One hash over several files of a folder: their names and contents, in sorted order."""
    return digest([[name, file_sha256(folder / name)] for name in sorted(names)])


_WORTH_REMEMBERING = 8 * 1024 * 1024  # bytes; smaller files hash faster than a look-up is worth


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "cluster-cli" / "hashes"


def _remember(path: Path, result: str) -> None:
    """Best effort: a read-only home must not stop anybody, it only costs hashing again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_text(result)
        os.replace(temporary, path)
    except OSError:
        pass
