"""The allocate stage: what is written, and what is said about wrong input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.allocation import Allocation
from formats.errors import ArtifactError, SettingError
from formats.selection import read_selection
from stages.allocate import allocate
from stages.select import select
from tests.synthetic import PUBLISHED, Notes, write_clusters


def make(folder: Path, sizes: list[int], count: int) -> Path:
    label = np.repeat(np.arange(len(sizes)), sizes)
    tokens = np.random.default_rng(0).integers(10, 200, len(label))
    write_clusters(folder / "c.zarr", label, tokens=tokens)
    select(folder / "c.zarr", folder / "s.jsonl", count=count, **PUBLISHED)
    return folder / "s.jsonl"


@pytest.mark.parametrize("strategy", ["disjoint", "interleaved", "random"])
def test_files_hold_the_selection_once_per_epoch(tmp_path: Path, strategy: str) -> None:
    path = make(tmp_path, [40, 30, 20], 53)
    allocate(
        path,
        tmp_path / "a",
        ranks=3,
        strategy=strategy,
        micro_batch=2,
        accumulation=2,
        epochs=2,
    )
    allocation, selection = Allocation.open(tmp_path / "a"), read_selection(path)
    assert allocation.steps_per_epoch == 5
    expected = {
        int(row): (ids.tobytes().hex(), float(weight), int(cluster), int(tokens))
        for row, ids, weight, cluster, tokens in zip(
            selection.row,
            selection.id,
            selection.weight,
            selection.cluster,
            selection.tokens,
            strict=True,
        )
    }
    seen: list[tuple[int, int]] = []
    for rank in range(3):
        batches = list(allocation.rank(rank))
        assert len(batches) == 2 * 5 * 2
        for batch in batches:
            for at, row in enumerate(batch.rows):
                seen.append((batch.epoch, row))
                got = (batch.ids[at], batch.weights[at], batch.clusters[at], batch.tokens[at])
                assert got == expected[row]
    assert sorted(seen) == [(epoch, row) for epoch in range(2) for row in sorted(expected)]


def test_manifest(tmp_path: Path) -> None:
    path = make(tmp_path, [40, 40], 32)
    header = allocate(path, tmp_path / "a", ranks=2, micro_batch=4)
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert manifest == json.loads(json.dumps(header.to_json()))
    assert [file["lines"] for file in manifest["files"]] == [4, 4]
    assert manifest["rendering"] == {"max_length": 64}
    assert manifest["inputs"][0]["path"] == "s.jsonl"
    assert manifest["stats"]["steps"] == 4
    assert manifest["stats"]["split_clusters"] == 0
    assert sorted(entry.name for entry in (tmp_path / "a").iterdir()) == [
        "manifest.json",
        "rank-00000.jsonl",
        "rank-00001.jsonl",
    ]


def test_same_bytes_again_and_other_bytes_for_another_seed(tmp_path: Path) -> None:
    path = make(tmp_path, [40, 30, 20], 50)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        allocate(path, tmp_path / name, ranks=2, seed=seed)
    files = [(tmp_path / name / "rank-00001.jsonl").read_bytes() for name in "abc"]
    assert files[0] == files[1] != files[2]


def test_up_to_date_force_and_an_edited_selection(tmp_path: Path) -> None:
    path, output = make(tmp_path, [40, 30], 30), tmp_path / "a"
    first = allocate(path, output, ranks=2)
    inode = (output / "rank-00000.jsonl").stat().st_ino
    notes = Notes()
    assert allocate(path, output, ranks=2, reporter=notes).key == first.key
    assert notes.messages == [f"{output} is up to date"]
    assert (output / "rank-00000.jsonl").stat().st_ino == inode
    allocate(path, output, ranks=2, force=True)
    assert (output / "rank-00000.jsonl").stat().st_ino != inode
    path.write_text(path.read_text().replace('"weight": 1.', '"weight": 2.', 1))
    assert allocate(path, output, ranks=2).key != first.key


def test_more_ranks_than_clusters_is_said(tmp_path: Path) -> None:
    notes = Notes()
    header = allocate(make(tmp_path, [40, 30], 40), tmp_path / "a", ranks=5, reporter=notes)
    assert notes.warnings == [
        "5 ranks share 2 clusters: 2 are split, and ranks meet on the same cluster"
    ]
    assert header.stats["plan"]["shared_cluster"] > 0


def test_more_ranks_than_examples(tmp_path: Path) -> None:
    allocate(make(tmp_path, [3, 2], 5), tmp_path / "a", ranks=9, micro_batch=2)
    allocation = Allocation.open(tmp_path / "a")
    rows = [[batch.rows for batch in allocation.rank(rank)] for rank in range(9)]
    assert [len(batches) for batches in rows] == [1] * 9
    assert sorted(len(batches[0]) for batches in rows) == [0] * 4 + [1] * 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ranks": 0}, "--ranks is 0; give a number from 1 to 4096"),
        ({"ranks": 5000}, "--ranks is 5000; give a number from 1 to 4096"),
        ({"ranks": 2, "micro_batch": 0}, "--micro-batch is 0; give a positive number"),
        ({"ranks": 2, "accumulation": -1}, "--accumulation is -1; give a positive number"),
        ({"ranks": 2, "epochs": 0}, "--epochs is 0; give a positive number"),
    ],
)
def test_bad_settings(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as error:
        allocate(make(tmp_path, [4, 4], 4), tmp_path / "a", **arguments)
    assert str(error.value) == message


def test_a_broken_selection_leaves_the_old_plan(tmp_path: Path) -> None:
    path, output = make(tmp_path, [40, 30], 30), tmp_path / "a"
    allocate(path, output, ranks=2)
    before = (output / "manifest.json").read_bytes()
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ArtifactError, match=r"s.jsonl:31: the line is cut short"):
        allocate(path, output, ranks=2)
    assert (output / "manifest.json").read_bytes() == before
    assert not (tmp_path / "a.partial").exists()
