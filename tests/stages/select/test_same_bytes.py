"""The same bytes for any threads and blocks, the same choice for any row order (shown 2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from formats.selection import hex_ids, read_selection
from stages.select import select
from tests.stages.select.sourced import write_map, write_target
from tests.synthetic import PUBLISHED

WAYS: dict[str, dict[str, Any]] = {
    "plain": {"weights": False},
    "published": PUBLISHED,
    "nearest": {"within": "nearest", "quota": "neyman"},
    "diverse": {"within": "diverse"},
    "stratified": {"stratify": "source", "min_per_cluster": 2},
    "targeted": {"target": "wanted.zarr"},
    "auto": {"fraction": "auto", "coverage": 0.8},
    **{
        method: {"method": method}
        for method in ("random", "balanced-random", "proportional", "loss", "loss-mid", "norm")
    },
    **{method: {"method": method} for method in ("k-centre", "facility", "tagcos")},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same rows in blocks of 64 and of 7, and the rows shuffled."""
    base = tmp_path_factory.mktemp("same")
    shuffle = np.random.default_rng(3).permutation(230)
    write_map(base / "plain", np.arange(230))
    write_map(base / "small", np.arange(230), block=7)
    write_map(base / "shuffled", shuffle, block=32)
    for name in ("plain", "small", "shuffled"):
        write_target(base / name / "wanted.zarr", lesson=1)
    return {name: base / name for name in ("plain", "small", "shuffled")}


def run(folder: Path, way: str, name: str = "s.jsonl") -> Path:
    given = {"count": 70, "weights": True} | WAYS[way]
    if "fraction" in given:
        del given["count"]
    if "target" in given:
        given["target"] = folder / given["target"]
    select(folder / "c.zarr", folder / name, **given)
    return folder / name


@pytest.mark.parametrize("way", WAYS)
def test_one_and_two_threads(folders: dict[str, Path], way: str) -> None:
    found = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            found.append(run(folders["plain"], way, f"{way}-{threads}.jsonl").read_bytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("way", WAYS)
def test_any_block_size(folders: dict[str, Path], way: str) -> None:
    assert run(folders["plain"], way).read_bytes() == run(folders["small"], way).read_bytes()


@pytest.mark.parametrize("way", WAYS)
def test_shuffled_rows(folders: dict[str, Path], way: str) -> None:
    found = []
    for name in ("plain", "shuffled"):
        chosen = read_selection(run(folders[name], way))
        found.append(sorted(zip(hex_ids(chosen.id), chosen.weight.tolist(), strict=True)))
    assert found[0] == found[1]
