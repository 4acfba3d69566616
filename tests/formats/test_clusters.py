"""clusters.zarr: its documented schema, and what is said about a damaged one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from formats.clusters import Clusters
from formats.errors import ArtifactError, ArtifactMissingError
from stages.cluster import cluster
from tests.synthetic import lessons, write_signatures


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clusters")
    rows, _ = lessons([20, 10, 5])
    write_signatures(folder / "signatures.zarr", rows)
    cluster(folder / "signatures.zarr", folder / "clusters.zarr", clusters=3)
    return folder / "clusters.zarr"


def test_schema_read_with_zarr_alone(made: Path) -> None:
    import zarr

    group = zarr.open_group(made, mode="r")
    shapes = {name: (array.shape, str(array.dtype)) for name, array in group.arrays()}
    assert shapes == {
        "centroid": ((3, 16), "float32"),
        "centre": ((16,), "float32"),
        "size": ((3,), "int64"),
        "tokens": ((3,), "int64"),
        "spread": ((3,), "float32"),
        "label": ((35,), "int32"),
        "similarity": ((35,), "float32"),
        "example_id": ((35, 16), "uint8"),
        "status": ((35,), "uint8"),
        "norm": ((35,), "float32"),
        "loss": ((35,), "float32"),
        "row_tokens": ((35,), "int32"),
        "response_tokens": ((35,), "int32"),
    }
    assert group.attrs["format"] == "cluster-cli/clusters"
    assert group.attrs["complete"] is True
    assert group.attrs["space_id"] == "space"
    assert group.attrs["rendering"] == {"max_length": 64}
    assert group.attrs["dataset"] == {"sources": [{"path": "data.jsonl"}]}


def test_open(made: Path) -> None:
    clusters = Clusters.open(made)
    assert (clusters.rows, clusters.clusters) == (35, 3)
    assert clusters.size.tolist() == [20, 10, 5]
    assert clusters.distinct.all()


def test_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissingError) as error:
        Clusters.open(tmp_path / "none.zarr")
    path = tmp_path / "none.zarr"
    assert (
        str(error.value)
        == f"{path} does not exist; make it with `cluster-cli cluster ... -o {path}`"
    )


def test_signatures_in_place_of_clusters(made: Path) -> None:
    path = made.parent / "signatures.zarr"
    with pytest.raises(ArtifactError, match="holds signatures, not clusters"):
        Clusters.open(path)


def test_a_missing_array(made: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(made, tmp_path / "clusters.zarr")
    shutil.rmtree(copy / "norm")
    with pytest.raises(ArtifactError) as error:
        Clusters.open(copy)
    assert str(error.value) == (
        f"{copy}: array norm is missing or has not 35 rows; "
        f"rebuild it with `cluster-cli cluster ... -o {copy}`"
    )


def test_labels_beyond_the_clusters(made: Path, tmp_path: Path) -> None:
    import zarr

    copy = shutil.copytree(made, tmp_path / "clusters.zarr")
    zarr.open_group(copy, mode="r+")["label"][3] = 7
    with pytest.raises(ArtifactError, match="labels reach from 0 to 7, but there are 3 clusters"):
        Clusters.open(copy)


def test_a_flipped_bit_is_found(made: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(made, tmp_path / "clusters.zarr")
    chunk = copy / "label" / "c" / "0"
    data = bytearray(chunk.read_bytes())
    data[5] ^= 1
    chunk.write_bytes(bytes(data))
    with pytest.raises(ArtifactError, match="array label cannot be read"):
        Clusters.open(copy)
