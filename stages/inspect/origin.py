"""Where an artifact came from: its inputs, their inputs, down to the data and the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from formats import artifacts
from formats.artifacts import Header
from formats.errors import ArtifactError, ArtifactMissingError, DataError
from formats.fingerprints import file_sha256
from formats.kinds import find_kind
from formats.places import Url, join
from formats.selection import content_hash

RECORDED, CHANGED, MISSING, UNCHECKED = "as recorded", "changed since", "missing", "not checked"


def origin(path: Path, header: Header) -> list[dict[str, Any]]:
    """The inputs of an artifact, followed as far as they are there.

    Returns:
        for each input ``path``, ``kind`` (an artifact's, ``data`` or ``model``), ``state`` (as recorded,
        changed since, missing, not checked), ``sha256`` as recorded, and ``origin``, its own inputs.
    """
    if header.kind == "signatures":
        return [*_data(path.parent, header), _model(header)]
    return [_input(path.parent, item, header.kind) for item in header.inputs]


def _input(folder: Path, item: dict[str, Any], reader: str) -> dict[str, Any]:
    """An artifact, a file that was read beside it, or the model of a run or an evaluation."""
    path = join(folder, item["path"])
    if _is_artifact(path):
        return _artifact(folder, item)
    if path.is_file():
        found = _state_of_file(path, item["sha256"])
        return _entry(str(path), "data", found, item["sha256"], rows=item.get("rows"))
    if reader in ("run", "evaluation") and item.get("rows") is None:
        return _entry(item["path"], "model", UNCHECKED, item["sha256"])
    return _artifact(folder, item)


def _is_artifact(path: Path) -> bool:
    try:
        find_kind(path)
    except ArtifactError:
        return False
    return True


def _entry(path: str, kind: str, state: str, sha256: str | None, **more: Any) -> dict[str, Any]:
    return {"path": path, "kind": kind, "state": state, "sha256": sha256, "origin": [], **more}


def _data(folder: Path, header: Header) -> list[dict[str, Any]]:
    entries = []
    for source in header.dataset.get("sources", []):
        path, state, recorded = source["path"], UNCHECKED, source.get("sha256")
        if source.get("kind") == "file":
            path = join(folder, path)
            state = _state_of_file(path, recorded)
        entries.append(_entry(str(path), "data", state, recorded, rows=source.get("rows")))
    return entries


def _state_of_file(path: Path, recorded: str | None) -> str:
    if isinstance(path, Url):  # data may be large, and a look at an artifact is to be quick
        return UNCHECKED
    if not path.exists():
        return MISSING
    try:
        return RECORDED if file_sha256(path) == recorded else CHANGED
    except DataError:
        return UNCHECKED


def _model(header: Header) -> dict[str, Any]:
    recorded = header.extra.get("space", {}).get("model")
    return _entry(str(header.params.get("model")), "model", UNCHECKED, recorded)


def _artifact(folder: Path, item: dict[str, Any]) -> dict[str, Any]:
    path, recorded = join(folder, item["path"]), item["sha256"]
    try:
        kind = find_kind(path)
        header = artifacts.read_header(path, kind)
    except ArtifactMissingError:
        return _entry(str(path), "artifact", MISSING, recorded)
    except ArtifactError as error:
        return _entry(str(path), "artifact", error.problem, recorded)
    # An input is recorded by its key, a selection by its lines, an allocation by its manifest.
    now = {"selection": content_hash, "allocation": _manifest}.get(kind, lambda _: header.key)(path)
    state = RECORDED if recorded in (now, header.key) else CHANGED
    return _entry(str(path), kind, state, recorded) | {"origin": origin(path, header)}


def _manifest(path: Path) -> str:
    return file_sha256(artifacts.stamp(path, "allocation"))
