"""The same data give the same map: threads, block size and row order leave no trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from formats.clusters import Clusters
from stages.cluster import cluster
from stages.cluster.contents import find_contents
from tests.stages.cluster.same import files
from tests.synthetic import lessons, make_ids, write_signatures

ROWS, DIMS = 1500, 256
SETTINGS = {"clusters": 40, "sample": 900}


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """Lessons that overlap, so that near ties abound; every tenth row repeats an earlier one."""
    made, _ = lessons([100] * 15, dims=DIMS, noise=2.5)
    made[9::10] = made[8::10]
    return made


def ids_and_status(order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the rows in this order: what comes again is marked as a duplicate, as score does."""
    number = np.where(order % 10 == 9, order - 1, order)
    _, first = np.unique(number, return_index=True)
    status = np.full(len(order), 5, dtype=np.uint8)
    status[first] = 0
    return make_ids(number), status


def write(path: Path, rows: np.ndarray, order: np.ndarray, block: int) -> Path:
    ids, status = ids_and_status(order)
    path.parent.mkdir()
    made = write_signatures(
        path, rows[order], ids=ids, status=status, block=block, tokens=order % 50 + 1
    )
    assert len(find_contents(ids, status)) == 1350
    return made


def test_threads_leave_no_trace(tmp_path: Path, rows: np.ndarray) -> None:
    """The real command with one and two threads: the same files."""
    path = write(tmp_path / "a" / "s.zarr", rows, np.arange(ROWS), 64)
    maps = []
    for threads in ("1", "2"):
        more = ["-k", str(SETTINGS["clusters"]), "--sample", str(SETTINGS["sample"]), "--force"]
        subprocess.run(
            [sys.executable, "-m", "cluster_cli", "-q", "cluster", "s.zarr", "-o", "c.zarr", *more],
            cwd=path.parent,
            env={
                **os.environ,
                "OMP_NUM_THREADS": threads,
                "OPENBLAS_NUM_THREADS": threads,
                "PYTHONPATH": os.getcwd(),
            },
            check=True,
            timeout=60,
        )
        maps.append(files(path.parent / "c.zarr"))
    assert maps[0] == maps[1]


def test_block_size_leaves_no_trace(tmp_path: Path, rows: np.ndarray) -> None:
    maps = []
    for block in (64, 1000, 1501, 7):
        path = write(tmp_path / str(block) / "s.zarr", rows, np.arange(ROWS), block)
        cluster(path, path.parent / "c.zarr", **SETTINGS)
        maps.append(files(path.parent / "c.zarr"))
    assert all(found == maps[0] for found in maps)


def test_row_order_leaves_no_trace(tmp_path: Path, rows: np.ndarray) -> None:
    """A shuffled dataset: the same clusters, and the same label and similarity for the same id."""
    straight, order = np.arange(ROWS), np.random.default_rng(3).permutation(ROWS)
    maps = []
    for name, places, block in (("a", straight, 64), ("b", order, 100)):
        path = write(tmp_path / name / "s.zarr", rows, places, block)
        cluster(path, tmp_path / name / "c.zarr", **SETTINGS)
        maps.append(Clusters.open(tmp_path / name / "c.zarr"))
    for array in ("centroid", "centre", "size", "tokens", "spread"):
        assert maps[0].column(array).tobytes() == maps[1].column(array).tobytes(), array
    for array in ("label", "similarity", "example_id"):
        left, right = (found.column(array) for found in maps)
        assert left[order].tobytes() == right.tobytes(), array


def test_auto_does_not_look_at_the_order_either(tmp_path: Path, rows: np.ndarray) -> None:
    order = np.random.default_rng(4).permutation(400)
    stats = []
    for name, places in (("a", np.arange(400)), ("b", order)):
        write_signatures(tmp_path / name, rows[places], ids=make_ids(places))
        stats.append(cluster(tmp_path / name, tmp_path / f"{name}.c").stats)
        assert stats[-1].pop("seconds") >= 0
    assert stats[0] == stats[1]
