"""Telling an artifact's kind from its header."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from formats.artifacts import HEADERS
from formats.errors import ArtifactError, ArtifactMissingError
from formats.kinds import artifact_path, find_kind


@pytest.mark.parametrize("kind", list(HEADERS))
def test_every_kind_is_known_by_its_header_alone(kind: str, tmp_path: Path) -> None:
    name = HEADERS[kind][0]
    header = {"format": f"cluster-cli/{kind}"}
    path = tmp_path / "artifact"
    file = path / name if name else path
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"attributes": header} if name == "zarr.json" else header) + "\n")
    assert find_kind(path) == kind
    assert artifact_path(file) == path
    assert artifact_path(path) == path


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"x"', "{}", '{"format": "cluster-cli/other"}', "\xff"]
)
def test_other_files_are_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ArtifactError) as error:
        find_kind(path)
    assert str(error.value) == (
        f"{path} is no artifact of cluster-cli; give one of signatures, clusters, selection, "
        "allocation, run, evaluation, comparison"
    )


def test_nothing_and_something_unfinished(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissingError) as missing:
        find_kind(tmp_path / "x")
    assert str(missing.value) == f"{tmp_path / 'x'} does not exist; check the path"
    (tmp_path / "zarr.json").write_text('{"attributes": {}}')
    with pytest.raises(ArtifactError) as unfinished:
        find_kind(tmp_path)
    assert str(unfinished.value) == (
        f"{tmp_path} is incomplete; run the command that makes it again"
    )
