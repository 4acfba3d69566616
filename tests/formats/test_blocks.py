"""Blocks of Zarr arrays: what is lost is an error, what is not written yet is the fill value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from formats import blocks
from formats.errors import ArtifactError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten rows in blocks of four, the last block not written yet."""
    path = tmp_path / "group.zarr"
    group = blocks.create_group(path, {"loss": ((10,), "float32")}, 4, fills={"loss": 7})
    group["loss"][:8] = 0.0
    return path


def test_a_block_that_is_not_there_is_an_error(folder: Path) -> None:
    group = blocks.open_arrays(folder)
    assert blocks.read(group, "loss", slice(0, 8)).tolist() == [0.0] * 8
    with pytest.raises(ArtifactError) as caught:
        blocks.read(group, "loss")
    assert str(caught.value) == (f"{folder}/loss/c/2 is missing; build it again with --force")


def test_half_an_artifact_reads_as_its_fill_value_where_nothing_stands(folder: Path) -> None:
    group = blocks.open_arrays(folder, whole=False)
    assert np.array_equal(blocks.read(group, "loss"), [0.0] * 8 + [7.0, 7.0])
