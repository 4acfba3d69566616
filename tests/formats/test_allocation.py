"""allocation/: what is written comes back; what was changed is named by file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import artifacts
from formats.allocation import Allocation, MicroBatch, line, lines, rank_file, write_rank
from formats.errors import ArtifactError, ArtifactMissingError, SettingError

BATCHES = [
    MicroBatch(0, 0, 0, [3, 4], ["a" * 32, "b" * 32], [1.5, 1 / 3], [0, 1], [10, 20]),
    MicroBatch(0, 0, 1, [7], ["c" * 32], [1.0], [0], [30]),
    MicroBatch(1, 1, 0, [7], ["c" * 32], [1.0], [0], [30]),
    MicroBatch(1, 1, 1, [], [], [], [], []),
]


def as_line(batch: MicroBatch) -> str:
    place = (batch.epoch, batch.step, batch.micro)
    return line(place, batch.rows, batch.ids, batch.weights, batch.clusters, batch.tokens)


def written(folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    files = [write_rank(folder, rank, map(as_line, BATCHES)) for rank in range(2)]
    extra = {
        "ranks": 2,
        "micro_batch": 2,
        "accumulation": 2,
        "epochs": 2,
        "steps_per_epoch": 1,
        "files": files,
        **changes,
    }
    header = artifacts.Header("allocation", "key", {}, [], extra=extra)
    artifacts.write_json(folder / "manifest.json", header.to_json())
    return folder


def test_round_trip(tmp_path: Path) -> None:
    allocation = Allocation.open(written(tmp_path / "allocation"))
    shape = (allocation.ranks, allocation.micro_batch, allocation.accumulation)
    assert (*shape, allocation.epochs, allocation.steps_per_epoch) == (2, 2, 2, 2, 1)
    assert allocation.steps == 2
    assert list(allocation.rank(1)) == BATCHES
    assert list(allocation.rank(0, from_step=1)) == BATCHES[2:]


def test_readable_with_json_alone(tmp_path: Path) -> None:
    folder = written(tmp_path / "allocation")
    lines = (folder / "rank-00001.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {
        "epoch": 0,
        "step": 0,
        "micro": 0,
        "rows": [3, 4],
        "ids": ["a" * 32, "b" * 32],
        "weights": [1.5, 1 / 3],
        "clusters": [0, 1],
        "tokens": [10, 20],
    }
    assert json.loads(lines[3])["ids"] == []


def test_no_such_rank(tmp_path: Path) -> None:
    folder = written(tmp_path / "allocation")
    with pytest.raises(SettingError) as error:
        next(Allocation.open(folder).rank(2))
    assert str(error.value) == (
        f"the allocation {folder} has no rank 2; it was made for 2 ranks, 0 to 1"
    )


def edit(folder: Path, number: int, **changes: Any) -> None:
    file = folder / rank_file(0)
    lines = file.read_text().splitlines(keepends=True)
    lines[number - 1] = json.dumps({**json.loads(lines[number - 1]), **changes}) + "\n"
    file.write_text("".join(lines))


@pytest.mark.parametrize(
    ("number", "changes", "problem"),
    [
        (1, {"weights": [1.5, -1.0]}, ":1: weight is -1.0, not a positive number"),
        (2, {"weights": [float("inf")]}, ":2: weight is inf, not a positive number"),
        (2, {"tokens": [1, 2]}, ":2: 1 rows but 2 tokens"),
        (2, {"clusters": "0"}, ":2: clusters is not a list of numbers"),
        (3, {"ids": [5]}, ":3: ids is not a list of strings"),
        (3, {"step": 0}, ":3: epoch, step, micro are [1, 0, 0], not [1, 1, 0]"),
        (1, {"more": 1}, ":1: not a micro-batch"),
        (1, {"weights": [1.5, 0.5]}, " was changed after it was written (its checksum differs)"),
    ],
)
def test_a_changed_line_is_named(
    tmp_path: Path, number: int, changes: dict[str, Any], problem: str
) -> None:
    folder = written(tmp_path / "allocation")
    edit(folder, number, **changes)
    with pytest.raises(ArtifactError) as error:
        list(Allocation.open(folder).rank(0))
    assert str(error.value) == (
        f"{folder / 'rank-00000.jsonl'}{problem}; "
        f"rebuild it with `cluster-cli allocate ... -o {folder}`"
    )
    assert list(Allocation.open(folder).rank(1)) == BATCHES


def test_a_file_cut_short_or_missing(tmp_path: Path) -> None:
    folder = written(tmp_path / "allocation")
    file = folder / "rank-00000.jsonl"
    text = file.read_text()
    for kept, problem in ((text[:-30], ":4: the line is cut short"), ("", " has 0 lines, not 4")):
        file.write_text(kept)
        with pytest.raises(ArtifactError) as error:
            next(Allocation.open(folder).rank(0))
        assert str(error.value).startswith(f"{file}{problem}; ")
    file.unlink()
    with pytest.raises(ArtifactError, match="is missing; rebuild it"):
        next(Allocation.open(folder).rank(0))


@pytest.mark.parametrize("value", [0, "2", None, True])
def test_a_manifest_without_its_shape(tmp_path: Path, value: Any) -> None:
    folder = written(tmp_path / "allocation", ranks=value)
    with pytest.raises(ArtifactError, match=r"manifest.json: ranks is .*, not positive; rebuild"):
        Allocation.open(folder)


def test_without_manifest_it_is_incomplete(tmp_path: Path) -> None:
    folder = written(tmp_path / "allocation")
    (folder / "manifest.json").unlink()
    with pytest.raises(ArtifactMissingError, match="is incomplete; make it with"):
        Allocation.open(folder)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    data=st.data(),
)
def test_many_lines_at_once_are_the_same_bytes(sizes: list[int], data: st.DataObject) -> None:
    count = sum(sizes)
    weights = st.floats(min_value=1e-300, max_value=1e300, exclude_min=True)
    columns = {
        "row": np.array(data.draw(st.lists(st.integers(0, 2**40), min_size=count, max_size=count))),
        "id": np.frombuffer(data.draw(st.binary(min_size=16 * count, max_size=16 * count)), "u1"),
        "weight": np.array(data.draw(st.lists(weights, min_size=count, max_size=count)), float),
        "cluster": np.arange(count, dtype=np.int32) * 7,
        "tokens": np.arange(count, dtype=np.int32) + 1,
    }
    columns["row"] = columns["row"].astype(np.int64)
    columns["id"] = columns["id"].reshape(count, 16)
    places = tuple(np.arange(len(sizes)) + first for first in (0, 10, 200))
    single, end = "", 0
    for place, size in zip(zip(*(p.tolist() for p in places), strict=True), sizes, strict=True):
        start, end = end, end + size
        part = {name: column[start:end] for name, column in columns.items()}
        single += line(
            place,
            part["row"].tolist(),
            [bytes(each).hex() for each in part["id"]],
            part["weight"].tolist(),
            part["cluster"].tolist(),
            part["tokens"].tolist(),
        )
    assert lines(places, np.array(sizes), columns) == single.encode()  # type: ignore[arg-type]


def test_the_denominator_of_the_loss(tmp_path: Path) -> None:
    plain = Allocation.open(written(tmp_path / "plain"))
    assert (plain.batch, plain.most_rows) == (2 * 2 * 2, 2)
    budget = Allocation.open(written(tmp_path / "budget", batch=2.5, micro_batch=1, most_rows=2))
    assert (budget.batch, budget.most_rows) == (2.5, 2)
    assert list(budget.rank(0)) == BATCHES  # two rows in a micro-batch of 1 on average


def test_more_rows_than_any_micro_batch_has(tmp_path: Path) -> None:
    folder = written(tmp_path / "allocation", micro_batch=1)
    with pytest.raises(ArtifactError, match=r"jsonl:1: 2 rows in a micro-batch of 1; rebuild"):
        list(Allocation.open(folder).rank(0))
