"""The coverage curve and ``--fraction auto``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from formats.clusters import Clusters
from formats.errors import SettingError
from formats.selection import read_selection
from stages.cluster import cluster
from stages.select import select
from stages.select.coverage import FRACTIONS, curve
from stages.select.methods import by_cluster
from stages.select.pool import read_pool
from stages.select.settings import Settings
from tests.synthetic import Notes, lessons, write_signatures


def mapped(folder: Path, noise: float) -> Clusters:
    rows, _ = lessons([60, 40, 20], dims=12, noise=noise)
    write_signatures(folder / "s.zarr", rows, block=50)
    cluster(folder / "s.zarr", folder / "c.zarr", clusters=3)
    return Clusters.open(folder / "c.zarr")


def test_against_the_definition(tmp_path: Path) -> None:
    import zarr

    clusters = mapped(tmp_path, noise=0.8)
    pool = read_pool(clusters)
    choose = by_cluster(clusters, pool, Settings())
    unit = zarr.open_group(tmp_path / "s.zarr", mode="r")["signature"][...].astype(np.float64)
    unit = unit[pool.row] - clusters.column("centre")
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -1)
    found = curve(clusters, pool, choose, None, 0.95)
    for entry in found["curve"]:
        chosen = choose(max(1, round(entry["fraction"] * 120)))
        expected = np.maximum(cosine[:, chosen].max(axis=1), 0).mean()
        assert entry["similarity"] == pytest.approx(expected, abs=1e-5)
    assert found["curve"][-1]["kept"] == 1
    assert found["needed"]["0.9"] <= found["needed"]["0.95"] <= found["needed"]["0.99"]
    assert found["needed"]["0.95"] == found["fraction"]


def test_repetitive_data_need_less(tmp_path: Path) -> None:
    needed = []
    for name, noise in (("alike", 0.05), ("varied", 2.0)):
        (tmp_path / name).mkdir()
        mapped(tmp_path / name, noise)
        select(tmp_path / name / "c.zarr", tmp_path / name / "s.jsonl", fraction="auto")
        selection = read_selection(tmp_path / name / "s.jsonl")
        found = selection.header.stats["coverage"]
        assert len(selection) == max(1, int(found["fraction"] * 120 + 0.5))
        needed.append(found["fraction"])
    assert needed[0] <= 0.1 < 0.4 < needed[1]


def test_said_and_part_of_the_key(tmp_path: Path) -> None:
    mapped(tmp_path, noise=0.8)
    notes = Notes()
    arguments = {"fraction": "auto", "reporter": notes}
    first = select(tmp_path / "c.zarr", tmp_path / "s.jsonl", **arguments)
    assert notes.messages[0] == first.stats["coverage"]["reason"]
    assert "keep 95% of the reachable similarity" in notes.messages[0]
    assert notes.messages[1] == (
        "coverage tells how distinct the rows are, not how many of them a model has to see; "
        "--curve asks a comparison of yours"
    )
    other = select(tmp_path / "c.zarr", tmp_path / "s.jsonl", coverage=0.8, **arguments)
    assert other.key != first.key
    assert other.stats["selected"] < first.stats["selected"]
    assert len(first.stats["coverage"]["curve"]) == len(FRACTIONS)


def test_coverage_out_of_range(tmp_path: Path) -> None:
    mapped(tmp_path, noise=0.8)
    with pytest.raises(SettingError) as error:
        select(tmp_path / "c.zarr", tmp_path / "s.jsonl", fraction="auto", coverage=1.5)
    assert str(error.value) == "--coverage is 1.5; give a number above 0, at most 1"
