"""clean: finds what killed runs left behind, and removes it when told to.

Only what is recognised as this program's is touched: other tools have files named ``*.lock`` too.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from formats.errors import ArtifactError
from formats.kinds import find_kind
from stages.reporting import Reporter, Silent

_LOCK = re.compile(r"process \d+ on \S+ \(")
_TEMPORARY = re.compile(r"\.(?P<of>.+)\.(?P<pid>\d+)\.tmp")
# What a half-built output or a work folder can hold at its top.
_OURS = ("zarr.json", "manifest.json", "settings.json", "job.json", "rank-00000.jsonl")
_MEANINGS = {
    ".partial": "half-built output",
    ".work": "work folder of a launch",
    ".old": "the output before the last one",
    ".lock": "lock that nobody holds",
    ".tmp": "half-written file",
}


@dataclass(frozen=True)
class Leftover:
    """Something that can go.

    Attributes:
        path: the file or folder.
        meaning: what it is, in words.
        size: bytes.
    """

    path: Path
    meaning: str
    size: int


def find(folder: Path, reporter: Reporter = Silent()) -> list[Leftover]:
    """The leftovers in a folder (not in its subfolders), by name.

    What belongs to an output that is being written now is left out, and so is an ``.old`` whose output is
    gone: it is the last good one. Both are said.

    Raises:
        ArtifactError: the folder cannot be read.
    """
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise ArtifactError(f"cannot read {folder}: {error.strerror}") from error
    return [
        Leftover(folder / name, _MEANINGS[suffix], _size(folder / name))
        for name in names
        for suffix in _suffix(folder / name, reporter)
    ]


def remove(leftovers: list[Leftover]) -> None:
    """Removes them.

    Raises:
        ArtifactError: one cannot be removed.
    """
    for leftover in leftovers:
        try:
            if leftover.path.is_dir() and not leftover.path.is_symlink():
                shutil.rmtree(leftover.path)
            else:
                leftover.path.unlink(missing_ok=True)
        except OSError as error:
            raise ArtifactError(f"cannot remove {leftover.path}: {error.strerror}") from error


def _suffix(path: Path, reporter: Reporter) -> Iterator[str]:
    """The suffix that makes it a leftover; nothing when it is none."""
    if (match := _TEMPORARY.fullmatch(path.name)) and path.is_file():
        if not _alive(int(match["pid"])):
            yield ".tmp"
        return
    output = path.with_name(path.stem)
    if path.suffix == ".lock" and path.is_file():
        if _is_our_lock(path) and not _held(path):
            yield ".lock"
    elif path.suffix in (".partial", ".work", ".old") and _is_ours(path, output):
        if _held(output.with_name(output.name + ".lock")):
            reporter.message(f"{path} is in use")
        elif path.suffix == ".old" and not output.exists():
            reporter.warn(f"{path} is the last good {output.name}; rename it to bring it back")
        else:
            yield path.suffix


def _is_ours(path: Path, output: Path) -> bool:
    if path.suffix == ".old":
        return _is_artifact(path)
    return path.is_dir() and (any((path / name).exists() for name in _OURS) or _is_artifact(output))


def _is_artifact(path: Path) -> bool:
    try:
        find_kind(path)
    except ArtifactError:
        return False
    return True


def _is_our_lock(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")[:300]
    except OSError:
        return False
    return bool(_LOCK.match(text)) or (not text and _is_artifact(path.with_suffix("")))


def _held(lock: Path) -> bool:
    """Whether a living process holds the lock; the kernel knows."""
    try:
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _size(path: Path) -> int:
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    return sum(
        os.lstat(os.path.join(root, name)).st_size
        for root, _, names in os.walk(path)
        for name in names
    )
