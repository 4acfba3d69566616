# ruff: noqa: E501 - tables of cases, one a line
"""Opening, serving, describing and re-opening datasets."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats.data import (
    DataOptions,
    Source,
    find_sources,
    open_dataset,
    open_reference,
    spool_stdin,
)
from formats.errors import BadRowsError, DataChangedError, DataError, SettingError
from formats.fingerprints import file_sha256

Rows = list[dict[str, Any]]


def qa(*answers: str) -> Rows:
    return [{"question": "q", "answer": answer} for answer in answers]


def write(path: Path, rows: Rows) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def answers(paths: list[str], **options: Any) -> list[str]:
    with open_dataset(paths, DataOptions(**options)) as dataset:
        return [example.messages[-1]["content"] for example in dataset]


def test_an_example_says_all_about_its_row(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.jsonl", qa("1", "2")), str(tmp_path / "b.json")
    Path(second).write_text("\n" + json.dumps([*qa("3"), {"text": "t", "id": 5}]))
    with open_dataset([first, second]) as dataset:
        assert (len(dataset), dataset.shape, dataset.rejected) == (4, "qa+text", 0)
        assert dataset.sources == [
            Source(first, file_sha256(first), 2),
            Source(second, file_sha256(second), 2),
        ]
        example = dataset[3]
        assert (example.row, example.file, example.line) == (3, second, 2)
        assert example.columns == {"text": "t", "id": 5}
        assert example.messages == [{"role": "text", "content": "t"}]
        assert example.tools is None
        assert dataset.ids.shape == (4, 16)
        assert dataset.ids.dtype == np.uint8
        assert dataset.ids[3].tobytes() == example.id
        assert dataset[np.int64(1)].line == 2
        assert [example.row for example in dataset] == [0, 1, 2, 3]
        for row in (4, -1):
            with pytest.raises(IndexError, match=f"^row {row} of a dataset of 4 rows$"):
                dataset[row]


def test_the_first_ten_bad_rows_are_listed_with_the_total(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", qa("1") + [{"question": "q", "answer": None}] * 12)
    with pytest.raises(BadRowsError) as caught:
        open_dataset([file])
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "12 of 13 rows cannot be used; repair them, or leave them out with --on-bad-row skip:"
    )
    assert lines[1] == f"  {file}:2: 'answer' is null (keys: question, answer)"
    assert lines[-1] == "  ... and 2 more"
    assert len(lines) == 12
    assert (len(caught.value.data["rows"]), caught.value.data["total"]) == (10, 12)  # type: ignore[arg-type]


def test_skipped_rows_are_written_down(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"question": "q", "answer": "1"}\n\xff\n{"question": "q", "answer": "2"}\n')
    rejected = tmp_path / "out.rejected.jsonl"
    with open_dataset([str(file)], DataOptions(on_bad_row="skip"), rejected=rejected) as dataset:
        assert (len(dataset), dataset.rejected) == (2, 1)
        assert (dataset[1].row, dataset[1].line) == (1, 3)
    assert [json.loads(line) for line in rejected.read_text().splitlines()] == [
        {
            "file": str(file),
            "line": 2,
            "reason": "not UTF-8 (byte 0xff at position 1)",
            "text": "\\xff\n",
        }
    ]
    file.write_bytes(b'{"question": "q", "answer": "1"}\n')
    open_dataset([str(file)], DataOptions(on_bad_row="skip"), rejected=rejected).close()
    assert sorted(tmp_path.iterdir()) == [file]  # nothing was rejected this time


def test_nothing_usable_is_an_error_even_when_skipping(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", [{"x": 1}])
    with pytest.raises(DataError) as caught:
        open_dataset([file], DataOptions(on_bad_row="skip"))
    assert str(caught.value) == (
        f"no usable row in the data, 1 rejected; the first: {file}:1: no known shape (keys: x); "
        "name its fields, such as --field prompt=NAME --field response=NAME"
    )


def test_limit_counts_usable_rows(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", [{"x": 1}, *qa("1", "2", "3"), {"x": 1}])
    assert answers([file], limit=2, on_bad_row="skip") == ["1", "2"]
    other = write(tmp_path / "b.jsonl", qa("4"))
    with open_dataset([other, file], DataOptions(limit=1)) as dataset:
        assert [source.rows for source in dataset.sources] == [1, 0]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=8))
def test_every_container_holds_the_same_rows(texts: list[str], tmp_path: Path) -> None:
    """JSONL, array (small pieces), CSV and Parquet: same text, same ids."""
    import csv

    import pyarrow
    import pyarrow.parquet

    from formats.data.readers import _Scanner

    rows = qa(*texts)
    lines = write(tmp_path / "a.jsonl", rows)
    array = tmp_path / "a.json"
    array.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    table = tmp_path / "a.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["question", "answer"], *(["q", text] for text in texts)])
    parquet = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), parquet)
    before, _Scanner._PIECE = _Scanner._PIECE, 5
    try:
        ids = []
        for path in (lines, array, table, parquet):
            with open_dataset([str(path)]) as dataset:
                ids.append(dataset.ids)
                assert [example.messages[1]["content"] for example in dataset] == texts
    finally:
        _Scanner._PIECE = before
    for other in ids[1:]:
        np.testing.assert_array_equal(other, ids[0])


def test_parquet_values_that_json_does_not_know(tmp_path: Path) -> None:
    import datetime
    import decimal

    import pyarrow
    import pyarrow.parquet

    row = {
        "question": b"q",
        "answer": "a",
        "score_": float("nan"),
        "day": datetime.date(2025, 1, 2),
        "price": decimal.Decimal("1.50"),
        "raw": b"\xff\x00",
    }
    file = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), file)
    with open_dataset([str(file)]) as dataset:
        assert dataset[0].columns == {
            "question": "q",
            "answer": "a",
            "score_": None,
            "day": "2025-01-02",
            "price": "1.50",
            "raw": "/wA=",
        }
        assert dataset[0].line == 1


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrow_files(kind: str, tmp_path: Path) -> None:
    import pyarrow

    table = pyarrow.Table.from_pylist(qa("1", "2"))
    file = str(tmp_path / "a.arrow")
    new = pyarrow.ipc.new_file if kind == "file" else pyarrow.ipc.new_stream
    with new(file, table.schema) as writer:
        writer.write_table(table)
    assert answers([file]) == ["1", "2"]


def test_a_saved_dataset(tmp_path: Path) -> None:
    import datasets

    folder = str(tmp_path / "one")
    datasets.Dataset.from_list(qa("1", "2")).save_to_disk(folder)
    assert answers([folder]) == ["1", "2"]
    folder = str(tmp_path / "two")
    parts = {
        "train": datasets.Dataset.from_list(qa("1")),
        "test": datasets.Dataset.from_list(qa("2")),
    }
    datasets.DatasetDict(parts).save_to_disk(folder)
    assert answers([folder], split="test") == ["2"]
    with pytest.raises(DataError) as caught:
        open_dataset([folder])
    assert (
        str(caught.value) == f"{folder} has several splits (test, train); choose one with --split"
    )
    with pytest.raises(DataError) as caught:
        open_dataset([folder], DataOptions(split="dev"))
    assert str(caught.value) == f"{folder} has no split 'dev' (splits: test, train); change --split"
    with open_dataset([folder], DataOptions(split="train")) as dataset:
        reference = dataset.reference(None)
    with open_reference(reference, None) as dataset:
        assert dataset[0].messages[1]["content"] == "1"


def test_a_folder_of_files(tmp_path: Path) -> None:
    write(tmp_path / "part-1.jsonl", qa("1"))
    write(tmp_path / "sub" / "part-0.jsonl", qa("2"))
    write(tmp_path / ".cache" / "x.jsonl", qa("3"))
    (tmp_path / "README.md").write_text("about")
    assert answers([str(tmp_path)]) == ["1", "2"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError) as caught:
        open_dataset([str(tmp_path / "empty")])
    assert str(caught.value).startswith(f"{tmp_path / 'empty'} holds no data file; readable are ")


def test_splits_and_subsets_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", qa("1"))
    write(tmp_path / "test.jsonl", qa("2"))
    with pytest.raises(DataError) as caught:
        open_dataset([str(tmp_path)])
    assert (
        str(caught.value)
        == f"{tmp_path} holds several splits (test, train); choose one with --split"
    )
    assert answers([str(tmp_path)], split="test") == ["2"]
    with pytest.raises(DataError) as caught:
        open_dataset([str(tmp_path)], DataOptions(split="dev"))
    assert (
        str(caught.value) == f"{tmp_path} has no split 'dev' (splits: test, train); change --split"
    )
    write(tmp_path / "hard" / "x.jsonl", qa("3"))
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n- config_name: hard\n  data_files: hard/x.jsonl\n"
        "- config_name: easy\n  data_files: train.jsonl\n---\n"
    )
    assert answers([str(tmp_path)], subset="hard") == ["3"]


def test_files_and_globs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b", "a", "c"):
        write(tmp_path / "x" / f"{name}.jsonl", qa(name))
    write(tmp_path / "odd[1].jsonl", qa("odd"))
    assert answers(["x/*.jsonl"]) == ["a", "b", "c"]
    assert answers(["x/c.jsonl", "x/[ab].jsonl"]) == ["c", "a", "b"]
    assert answers(["x/**/*"]) == ["a", "b", "c"]
    assert answers(["odd[1].jsonl"]) == ["odd"]
    assert find_sources(["x/[ab].jsonl"], DataOptions()) == [
        ("x/a.jsonl", file_sha256("x/a.jsonl")),
        ("x/b.jsonl", file_sha256("x/b.jsonl")),
    ]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([], "no data given; name at least one file, folder or dataset"),
        (["-"], "'-' (standard input) can be read only once; copy it to a file first and name that"),
        (["x/*.csv"], "no file matches 'x/*.csv'; check the pattern and the folder"),
        (["x/trian.jsonl"], "no such file: x/trian.jsonl (near it: x/train.jsonl); check the path"),
        (["nothing"], "no such file: nothing; check the path"),
        (["x/train.jsonl", "x/*"], "x/train.jsonl is named twice and its rows would count twice; name every file once"),
    ],
)  # fmt: skip
def test_names_that_stand_for_nothing(
    paths: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x" / "train.jsonl", qa("1"))
    with pytest.raises(DataError) as caught:
        find_sources(paths, DataOptions())
    assert str(caught.value) == message


def test_a_hub_name_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import datasets

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("no network here\nsecond line")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:
        open_dataset(["owner/name"])
    assert str(caught.value) == (
        "owner/name is not a file or folder here, and could not be loaded from the Hugging Face "
        "hub: no network here; check the spelling, or the network"
    )


def test_a_hub_dataset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The library's loader is given a local folder instead of a hub; the rest is as it is."""
    import datasets

    load = datasets.load_dataset
    write(tmp_path / "data" / "train.jsonl", qa("1", "2"))
    write(tmp_path / "data" / "test.jsonl", qa("3"))
    local = str(tmp_path / "data")
    cache = str(tmp_path / "cache")
    monkeypatch.setattr(
        datasets,
        "load_dataset",
        lambda name, subset, split: load(local, subset, split=split, cache_dir=cache),
    )
    monkeypatch.chdir(tmp_path)
    assert answers(["owner/name"], split="train") == ["1", "2"]
    with open_dataset(["owner/name"], DataOptions(split="test")) as dataset:
        reference = dataset.reference(tmp_path)
    assert reference["sources"][0]["path"] == "owner/name"
    with open_reference(reference, tmp_path) as dataset:
        assert dataset[0].messages[1]["content"] == "3"
    with pytest.raises(DataError, match=r"^owner/name has several splits \(test, train\)"):
        open_dataset(["owner/name"])


@pytest.mark.parametrize("option", ["split", "subset"])
def test_files_have_no_splits(option: str, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", qa("1"))
    with pytest.raises(SettingError) as caught:
        open_dataset([file], DataOptions(**{option: "x"}))  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"--{option} x means nothing for the file {file}; drop --{option}; it is for Hugging Face "
        "datasets and for folders"
    )


def test_a_reference_survives_a_move(tmp_path: Path) -> None:
    write(tmp_path / "old" / "data" / "a.jsonl", qa("1", "2"))
    (tmp_path / "old" / "run").mkdir()
    options = DataOptions(fields=(("prompt", "question"), ("response", "answer")), limit=1)
    with open_dataset([str(tmp_path / "old" / "data" / "a.jsonl")], options) as dataset:
        reference = json.loads(json.dumps(dataset.reference(tmp_path / "old" / "run")))
        ids = dataset.ids
    assert reference["sources"][0]["path"] == "../data/a.jsonl"
    assert reference["shape"] == "fields"
    (tmp_path / "old").rename(tmp_path / "new")
    with open_reference(reference, tmp_path / "new" / "run") as dataset:
        assert dataset.options == options
        np.testing.assert_array_equal(dataset.ids, ids)


def test_a_reference_notices_changes(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", qa("1"))
    with open_dataset([file]) as dataset:
        reference = dataset.reference(None)
    write(tmp_path / "a.jsonl", qa("2"))
    with pytest.raises(DataChangedError) as changed:
        open_reference(reference, None)
    assert str(changed.value) == (
        f"{file} is no longer the file that was read before (its content has changed); "
        "restore it, or start again from score"
    )
    Path(file).unlink()
    with pytest.raises(DataError) as missing:
        open_reference(reference, None)
    assert str(missing.value) == f"the data file {file} is missing; put it back where it was"


def test_a_file_that_changes_while_in_use(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", qa("1"))
    with open_dataset([file]) as dataset:
        write(tmp_path / "a.jsonl", qa("2"))
        with pytest.raises(DataChangedError) as changed:
            dataset[0]
        assert str(changed.value) == f"{file}:1 changed while it was in use; start again"


def test_standard_input_is_copied(tmp_path: Path) -> None:
    stream = io.BytesIO(b'{"question": "q", "answer": "1"}\n')
    file = spool_stdin(stream, tmp_path / "stdin.jsonl")
    assert answers([str(file)]) == ["1"]
    assert sorted(tmp_path.iterdir()) == [file]


def test_more_files_than_handles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from formats.data import store

    monkeypatch.setattr(store, "_MAX_OPEN", 2)
    files = [write(tmp_path / f"{number}.jsonl", qa(str(number))) for number in range(5)]
    with open_dataset(files) as dataset:
        for row in (0, 4, 1, 3, 2, 0):
            assert dataset[row].messages[1]["content"] == str(row)


def test_options_survive_pickling_and_json() -> None:
    options = DataOptions(fields=(("prompt", "a"), ("response", "b")), limit=3)
    assert pickle.loads(pickle.dumps(options)) == options
    assert DataOptions.from_json(json.loads(json.dumps(options.to_json()))) == options
