"""The state of an artifact by itself: what its header says of its inputs, against what is there now.

Without a pipeline file nobody knows which settings are wanted, so only content can have changed: data,
lists, models, and other artifacts, however far back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.artifacts import Header
from formats.errors import ArtifactError, ArtifactMissingError
from formats.fingerprints import file_sha256
from formats.kinds import artifact_path, find_kind
from formats.places import Url, join
from formats.selection import content_hash
from stages.models import find_model
from stages.pipeline.chain import short
from stages.pipeline.states import (
    FRESH,
    INCOMPLETE,
    MISSING,
    STALE,
    State,
    difference,
    half_done,
)

GONE = "missing"


def status_of(path: str | os.PathLike[str]) -> State:
    """The state of one artifact, without its pipeline. Nothing is changed.

    It is stale when something it was made from has another content now, or something that was made from
    that. A data file that is gone makes it stale too; an artifact in between may be removed, since equal
    inputs give equal results. A model that ``score`` was given by a relative path is looked for from the
    current folder, and not compared when it is not there; names of the hub and URLs are not looked up.

    Args:
        path: of any artifact, or of its header file.

    Raises:
        ArtifactError: what stands there is no artifact.
        DataError, ModelError: an input cannot be read.
    """
    path = artifact_path(path)
    found = half_done(artifacts.partial(path))
    try:
        kind = find_kind(path)
    except ArtifactMissingError:
        if found is None:
            return State("", MISSING, path, ["not made yet"])
        stage = "score" if (artifacts.partial(path) / "zarr.json").exists() else "train"
        return State(stage, INCOMPLETE, path, [found[1]])
    stage = artifacts.HEADERS[kind][1]
    try:
        header = artifacts.read_header(path, kind)
    except ArtifactError as error:
        return State(stage, STALE, path, [error.problem])
    if not (reasons := list(dict.fromkeys(_changes(path, header)))):
        return State(stage, FRESH, path, [], header.key, None, header)
    if found is not None:
        reasons.append(f"{artifacts.partial(path).name} has {found[1]}")
    return State(stage, STALE, path, reasons, header.key)


def _changes(path: Path, header: Header) -> Iterator[str]:
    """``input: old -> new`` for every input whose content is another now, the nearest first."""
    folder, data = path.parent, header.dataset.get("sources", [])
    if header.kind == "signatures":  # its inputs are the data, as they were named
        yield from _changed_model(header)
    else:
        recorded = {source["sha256"] for source in data}
        for item in header.inputs:
            if item["sha256"] not in recorded:
                yield from _changed_input(join(folder, item["path"]), item)
    for source in data:
        if source.get("kind") == "file":
            yield from _changed_file(join(folder, source["path"]), source)


def _changed_file(path: Path, item: dict[str, Any]) -> Iterator[str]:
    if isinstance(path, Url):
        return
    now = file_sha256(path) if path.exists() else GONE
    if now != item["sha256"]:
        yield difference(str(path), short(item["sha256"]), short(now))


def _changed_input(path: Path, item: dict[str, Any]) -> Iterator[str]:
    if isinstance(path, Url) or not path.exists():
        return
    try:
        kind = find_kind(path)
    except ArtifactError:
        if path.is_dir() or path.suffix == ".gguf":
            yield from _changed(path, item["sha256"], find_model(path).weights_sha256)
        else:
            yield from _changed_file(path, item)
        return
    try:
        header = artifacts.read_header(path, kind)
    except ArtifactError as error:
        yield error.problem
        return
    yield from _changed(path, item["sha256"], *_names(path, header))
    yield from _changes(path, header)


def _names(path: Path, header: Header) -> list[str]:
    """The hashes by which other artifacts record this one: the usual one first."""
    file = file_sha256(artifacts.stamp(path, header.kind))
    if header.kind == "selection":
        return [content_hash(path), file, header.key]
    return [file, header.key] if header.kind == "allocation" else [header.key, file]


def _changed(path: Path, old: str, *now: str) -> Iterator[str]:
    if old not in now:
        yield difference(str(path), short(old), short(now[0]))


def _changed_model(header: Header) -> Iterator[str]:
    """The one that made signatures; a trajectory has several, which the header does not name."""
    name = Path(str(header.params.get("proxy") or header.params.get("model")))
    old = header.extra.get("space", {}).get("model")
    if isinstance(old, str) and name.exists():
        yield from _changed(name, old, find_model(name).weights_sha256)
