"""What kind of artifact stands at a path, told from its header alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

from formats.artifacts import HEADERS
from formats.errors import ArtifactError, ArtifactMissingError

_HEADER_FILES = ("zarr.json", "manifest.json", "run.json")


def artifact_path(path: str | os.PathLike[str]) -> Path:
    """The artifact itself, also when its header file was named, as a Makefile does."""
    path = Path(path)
    return path.parent if path.name in _HEADER_FILES and path.is_file() else path


def find_kind(path: Path) -> str:
    """The kind, one of ``formats.artifacts.HEADERS``.

    Raises:
        ArtifactMissingError: nothing is there.
        ArtifactError: what is there is no artifact, or one that was not finished.
    """
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


def _kind_in(file: Path) -> str | None:
    try:
        with open(file, encoding="utf-8") as stream:
            raw = json.load(stream) if file.name in _HEADER_FILES else json.loads(stream.readline())
        header = raw.get("attributes", raw) if file.name == "zarr.json" else raw
        kind = str(header["format"]).removeprefix("cluster-cli/")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return kind if kind in HEADERS else None
