"""selection.jsonl: what is written comes back; what is malformed is named by file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.artifacts import Header
from formats.errors import ArtifactError, ArtifactMissingError
from formats.selection import content_hash, read_selection, write_selection
from tests.synthetic import make_ids

HEADER = Header("selection", "key", {}, [], stats={"selected": 3}, extra={"space_id": "s"})
COLUMNS = {
    "row": np.array([2, 5, 9]),
    "id": make_ids(np.arange(3)),
    "cluster": np.array([1, 0, 1], dtype=np.int32),
    "weight": np.array([1 / 3, 2.0, 2 / 3]),
    "similarity": np.array([0.25, -0.5, 1.0], dtype=np.float32),
    "tokens": np.array([7, 8, 900], dtype=np.int32),
}


def written(path: Path, header: Header = HEADER) -> Path:
    write_selection(path, header, COLUMNS)
    return path


def test_round_trip(tmp_path: Path) -> None:
    selection = read_selection(written(tmp_path / "selection.jsonl"))
    assert len(selection) == 3
    assert selection.header.extra == {"space_id": "s"}
    for name, column in COLUMNS.items():
        assert np.array_equal(getattr(selection, name), column), name
    assert selection.weight.dtype == np.float64


def test_readable_with_json_alone(tmp_path: Path) -> None:
    lines = written(tmp_path / "selection.jsonl").read_text().splitlines()
    header, *examples = map(json.loads, lines)
    assert header["format"] == "cluster-cli/selection"
    assert header["complete"] is True
    assert examples[1] == {
        "row": 5,
        "id": COLUMNS["id"][1].tobytes().hex(),
        "cluster": 0,
        "weight": 2.0,
        "similarity": -0.5,
        "tokens": 8,
    }


def test_content_hash_ignores_the_header(tmp_path: Path) -> None:
    first = content_hash(written(tmp_path / "a.jsonl"))
    other = Header("selection", "other", {"seed": 1}, [], stats={"selected": 3})
    assert content_hash(written(tmp_path / "b.jsonl", other)) == first


def edited(path: Path, line: int, **changes: Any) -> Path:
    lines = written(path).read_text().splitlines(keepends=True)
    item = {**json.loads(lines[line - 1]), **changes}
    kept = {name: value for name, value in item.items() if value is not None}
    lines[line - 1] = json.dumps(kept) + "\n"
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"weight": -1.0}, "weight is -1.0, not a positive number"),
        ({"weight": 0}, "weight is 0, not a positive number"),
        ({"weight": float("nan")}, "weight is NaN, not a positive number"),
        ({"weight": "1"}, 'weight is "1", not a positive number'),
        ({"row": -1}, "row is -1, not an integer of at least 0"),
        ({"row": True}, "row is true, not an integer of at least 0"),
        ({"cluster": 0.5}, "cluster is 0.5, not an integer of at least 0"),
        ({"tokens": 0}, "tokens is 0, not an integer of at least 1"),
        ({"id": "xyz"}, 'id is "xyz", not 32 hexadecimal digits'),
        ({"similarity": 3}, "similarity is 3, not a cosine"),
        ({"weight": None, "id": None}, "no id, weight"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    path = edited(tmp_path / "selection.jsonl", 3, **changes)
    with pytest.raises(ArtifactError) as error:
        read_selection(path)
    assert str(error.value) == (
        f"{path}:3: {problem}; rebuild it with `cluster-cli select ... -o {path}`"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1]\n", "not a JSON object"),
        ("\n", "not a JSON object"),
        ("{}, {}\n", "not a JSON object"),
        ('{"row": 5, "id"\n', "not a JSON object"),
        ('{"row": 5, "id"', "the line is cut short"),
        ("{}", "the line is cut short"),
    ],
)
def test_a_line_that_is_no_object(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path / "selection.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + text)
    with pytest.raises(ArtifactError) as error:
        read_selection(path)
    assert str(error.value).startswith(f"{path}:4: {problem}; ")


def test_missing_lines_at_the_end(tmp_path: Path) -> None:
    path = written(tmp_path / "selection.jsonl")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    with pytest.raises(ArtifactError, match="holds 2 examples, its header says 3; "):
        read_selection(path)


def test_rows_out_of_order(tmp_path: Path) -> None:
    path = edited(tmp_path / "selection.jsonl", 4, row=5)
    with pytest.raises(ArtifactError, match=r":4: row 5 comes after row 5; rows must ascend; "):
        read_selection(path)


def test_nothing_there_and_something_else(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissingError, match="does not exist"):
        read_selection(tmp_path / "none.jsonl")
    other = tmp_path / "other.jsonl"
    other.write_text('{"format": "cluster-cli/allocation"}\n')
    with pytest.raises(ArtifactError, match="holds allocation, not selection"):
        read_selection(other)


def test_an_empty_selection_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "selection.jsonl"
    empty = {name: column[:0] for name, column in COLUMNS.items()}
    write_selection(path, Header("selection", "key", {}, [], stats={"selected": 0}), empty)
    assert len(read_selection(path)) == 0
