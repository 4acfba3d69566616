"""What kind of artifact stands at a path, told from its header alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

from formats.artifacts import HEADERS
from formats.errors import ArtifactError, ArtifactMissingError
from formats.places import Url, first_line, place

_HEADER_FILES = ("zarr.json", "manifest.json", "run.json")


def artifact_path(path: str | os.PathLike[str]) -> Path:
    """The artifact itself, also when its header file was named, as a Makefile does."""
    path = place(path)
    named = path.name in _HEADER_FILES and (isinstance(path, Url) or path.is_file())
    return path.parent if named else path


def find_kind(path: Path) -> str:
    """The kind, one of ``formats.artifacts.HEADERS``.

    Raises:
        ArtifactMissingError: nothing is there.
        ArtifactError: what is there is no artifact, or one that was not finished.
    """
    path = place(path)
    if isinstance(path, Url):
        return _remote_kind(path)
    if not path.exists():
        raise ArtifactMissingError(f"{path} does not exist", fix="check the path")
    files = [path / name for name in _HEADER_FILES] if path.is_dir() else [path]
    for file in files:
        if file.is_file() and (kind := _kind_in(file)):
            return kind
    if path.is_dir() and (path / "zarr.json").exists():
        raise ArtifactError(f"{path} is incomplete", fix="run the command that makes it again")
    raise ArtifactError(
        f"{path} is no artifact of cluster-cli", fix=f"give one of {', '.join(HEADERS)}"
    )


def _remote_kind(path: Url) -> str:
    """The same where folders cannot be told from files: each header file is asked for in turn."""
    files = [path / name for name in _HEADER_FILES]
    for file in [path, *files] if path.suffix in (".json", ".jsonl") else [*files, path]:
        if kind := _kind_in(file):
            return kind
    raise ArtifactMissingError(f"{path} is no artifact of cluster-cli", fix="check the URL")


def _kind_in(file: Path) -> str | None:
    try:
        whole = file.name in _HEADER_FILES
        raw = json.loads(file.read_text(encoding="utf-8") if whole else first_line(file))
        header = raw.get("attributes", raw) if file.name == "zarr.json" else raw
        kind = str(header["format"]).removeprefix("cluster-cli/")
    except ArtifactError:  # of a URL
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return kind if kind in HEADERS else None
