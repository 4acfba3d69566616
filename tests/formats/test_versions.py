"""One small artifact of every released format version stays readable, and sound."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.allocation import Allocation
from formats.clusters import Clusters
from formats.runs import read_metrics
from formats.selection import read_selection
from formats.signatures import Signatures
from stages.validate import validate

DATA = Path(__file__).resolve().parents[1] / "data"
VERSIONS = sorted(path.name for path in DATA.iterdir() if path.is_dir())


def test_there_is_one_of_the_present_version() -> None:
    from formats.artifacts import VERSION

    assert VERSION in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_every_kind_is_read(version: str) -> None:
    """The chain that made them: 24 rows, 3 clusters, 8 selected, 2 ranks of 2 a micro-batch."""
    folder = DATA / version
    assert Signatures.open(folder / "signatures.zarr").rows == 24
    assert Clusters.open(folder / "clusters.zarr").clusters == 3
    selection = read_selection(folder / "selection.jsonl")
    assert len(selection) == 8
    allocation = Allocation.open(folder / "allocation")
    planned = [row for rank in range(2) for micro in allocation.rank(rank) for row in micro.rows]
    assert sorted(planned) == selection.row.tolist()
    assert len(list(read_metrics(folder / "run"))) == 2


@pytest.mark.parametrize(
    "name", ["signatures.zarr", "clusters.zarr", "selection.jsonl", "allocation"]
)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_kind_is_sound(version: str, name: str) -> None:
    validate(DATA / version / name)
