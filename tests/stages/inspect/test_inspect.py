"""What an artifact says about itself, and about where it came from."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats import artifacts, blocks
from formats.clusters import Clusters
from formats.data import open_dataset
from formats.errors import DataError, SettingError
from stages.cluster import cluster
from stages.inspect import inspect
from stages.inspect.cards import cards, one_line
from stages.inspect.report import as_lines
from tests import prepared, tiny
from tests.synthetic import lessons, write_signatures


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared.untouched(tmp_path_factory) / "work"


def chain(entries: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Name, kind and state of every input, depth first."""
    found = []
    for entry in entries:
        found.append((Path(entry["path"]).name, entry["kind"], entry["state"]))
        found += chain(entry["origin"])
    return found


FROM_DATA = [("data.jsonl", "data", "as recorded"), ("model", "model", "not checked")]
FROM_SIGNATURES = [("signatures.zarr", "signatures", "as recorded"), *FROM_DATA]
FROM_CLUSTERS = [("clusters.zarr", "clusters", "as recorded"), *FROM_SIGNATURES]
FROM_SELECTION = [("selection.jsonl", "selection", "as recorded"), *FROM_CLUSTERS]
FROM_ALLOCATION = [("allocation", "allocation", "as recorded"), *FROM_SELECTION]


@pytest.mark.parametrize(
    ("name", "kind", "origin"),
    [
        ("signatures.zarr", "signatures", FROM_DATA),
        ("clusters.zarr", "clusters", FROM_SIGNATURES),
        ("selection.jsonl", "selection", FROM_CLUSTERS),
        ("allocation", "allocation", FROM_SELECTION),
        ("run", "run", [*FROM_ALLOCATION, ("model", "model", "not checked")]),
    ],
)
def test_the_chain_of_inputs_is_followed_to_the_data(
    work: Path, name: str, kind: str, origin: list[tuple[str, str, str]]
) -> None:
    found = inspect(work / name, rows=2)
    assert found["kind"] == kind
    assert chain(found["origin"]) == origin
    assert len(found["rows"]) == 2
    for field in ("key", "created_by", "format_version", "params", "stats"):
        assert found[field]


def test_what_has_changed_or_gone_is_said(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder = prepared.copy(tmp_path_factory, tmp_path / "copy")
    (folder / "data.jsonl").write_text('{"question": "a", "answer": "b"}\n')
    path = folder / "work" / "clusters.zarr"
    assert chain(inspect(path)["origin"])[1] == ("data.jsonl", "data", "changed since")
    assert inspect(path)["examples_missing"] == (
        f"{folder / 'data.jsonl'} is no longer the file that was read before (its content has changed)"
    )
    (folder / "data.jsonl").unlink()
    assert chain(inspect(path)["origin"])[1] == ("data.jsonl", "data", "missing")
    shutil.rmtree(folder / "work" / "signatures.zarr")
    assert chain(inspect(path)["origin"]) == [("signatures.zarr", "artifact", "missing")]


def test_first_rows_are_those_of_the_files(work: Path) -> None:
    import json

    lines = (work / "selection.jsonl").read_text().splitlines()[1:4]
    stored = [json.loads(line) for line in lines]
    shown = inspect(work / "selection.jsonl", rows=3)["rows"]
    for a, b in zip(stored, shown, strict=True):
        assert a == b | {"similarity": a["similarity"]}
        assert abs(a["similarity"] - b["similarity"]) < 1e-4
    metrics = [json.loads(x) for x in (work / "run" / "metrics.jsonl").read_text().splitlines()]
    assert inspect(work / "run", rows=3)["rows"] == [*metrics[:2], metrics[-1]]


def test_cards_agree_with_the_arrays(tmp_path: Path) -> None:
    """Sums and means recomputed row by row, examples sorted by hand."""
    source = write_signatures(tmp_path / "s.zarr", lessons([50, 30, 3], noise=0.5)[0])
    cluster(source, tmp_path / "c.zarr", clusters=3)
    opened = Clusters.open(tmp_path / "c.zarr")
    found = cards(opened, 2)
    made = found["clusters"]
    assert found["examples_missing"] is not None  # the made-up signatures have no data
    assert found["mixed_by"] is None
    label, similarity = opened.label, opened.column("similarity")
    for card in made:
        rows = [row for row in range(83) if label[row] == card["cluster"]]
        assert card["size"] == len(rows)
        assert card["share"] == round(len(rows) / 83, 6)
        assert card["tokens"] == sum(int(opened.column("row_tokens")[row]) for row in rows)
        assert card["mean_similarity"] == pytest.approx(np.mean(similarity[rows]), abs=1e-6)
        assert card["mean_loss"] == pytest.approx(np.mean(opened.column("loss")[rows]), abs=1e-6)
        best = sorted(rows, key=lambda row: -similarity[row])
        typical = best[: min(2, (len(rows) + 1) // 2)]
        unusual = best[len(typical) :][::-1][:2]
        assert [example["row"] for example in card["typical"]] == typical
        assert [example["row"] for example in card["unusual"]] == unusual


def test_cards_show_the_rows_themselves(work: Path) -> None:
    rows = tiny.questions(prepared.ROWS)
    for card in inspect(work / "clusters.zarr")["clusters"]:
        for example in card["typical"] + card["unusual"]:
            row = rows[example["row"]]
            assert example["text"] == f"{row['question']} => {row['answer']}"


@pytest.mark.parametrize(
    ("messages", "line"),
    [
        ([("user", "a\n b"), ("assistant", "c")], "a b => c"),
        (
            [("system", "s"), ("user", "a"), ("assistant", "c"), ("user", "d"), ("assistant", "e")],
            "d => e",
        ),
        ([("text", "only text")], "only text"),
        ([("assistant", "hello")], "hello"),
        ([("user", "u" * 200), ("assistant", "v" * 200)], "u" * 47 + "... => " + "v" * 43 + "..."),
        ([("user", "u" * 200), ("assistant", "ok")], "u" * 91 + "... => ok"),
        ([], ""),
    ],
)
def test_one_line(messages: list[tuple[str, str]], line: str) -> None:
    assert one_line([{"role": role, "content": text} for role, text in messages]) == line
    assert len(line) <= 100


def test_nested_figures_become_dotted_names() -> None:
    value = {"a": {"b": 1, "c": {}}, "d": "text", "e": [1, 2], "f": "x" * 200}
    assert as_lines(value) == [
        ("a.b", "1"),
        ("a.c", "{}"),
        ("d", "text"),
        ("e", "[1, 2]"),
        ("f", "x" * 97 + "..."),
    ]


def sourced(folder: Path, rows: list[dict[str, Any]], files: int = 1) -> Path:
    """A map of two lessons, 20 and 10 rows, over data with these columns, in so many files."""
    made, lesson = lessons([20, 10], noise=0.2)
    order = np.argsort(lesson, kind="stable")
    write_signatures(folder / "s.zarr", made[order])
    parts = np.array_split(np.arange(len(rows)), files)
    paths = [
        tiny.write_jsonl(folder / f"part{at}.jsonl", [rows[row] for row in part])
        for at, part in enumerate(parts)
    ]
    with open_dataset([str(path) for path in paths]) as dataset:
        reference = dataset.reference(folder)
    header = artifacts.read_header(folder / "s.zarr", "signatures")
    blocks.seal(folder / "s.zarr", replace(header, dataset=reference).to_json())
    cluster(folder / "s.zarr", folder / "c.zarr", clusters=2)
    return folder / "c.zarr"


def rows_with(**columns: Any) -> list[dict[str, Any]]:
    """30 questions with further columns, each a function of the row's number."""
    return [
        {**row, **{name: value(at) for name, value in columns.items()}}
        for at, row in enumerate(tiny.questions(30))
    ]


def test_cards_count_the_sources(tmp_path: Path) -> None:
    """The first lesson is 15 of exams and 5 of forums, the second is all forums."""
    origin = {"Source": lambda at: "exams" if at < 15 else "forums", "topic": lambda at: at % 3}
    path = sourced(tmp_path, rows_with(**origin))
    found = inspect(path)
    assert found["mixed_by"] == "Source"
    assert [card["mix"] for card in found["clusters"]] == [
        [
            {"value": "exams", "rows": 15, "share": 0.75},
            {"value": "forums", "rows": 5, "share": 0.25},
        ],
        [{"value": "forums", "rows": 10, "share": 1.0}],
    ]
    by_topic = inspect(path, by="topic")
    assert by_topic["mixed_by"] == "topic"
    assert [part["value"] for part in by_topic["clusters"][0]["mix"]] == ["0", "1", "2"]


def test_what_is_no_source_is_passed_over(tmp_path: Path) -> None:
    """One value says nothing, a value per row is a name, a mostly empty column is no source."""
    columns = {
        "source": lambda at: "all the same",
        "origin": lambda at: ["a", "list"],
        "category": lambda at: "rare" if at < 2 else None,
        "domain": lambda at: None if at == 3 else at % 2,
    }
    found = inspect(sourced(tmp_path, rows_with(**columns)))
    assert found["mixed_by"] == "domain"
    assert sum(part["rows"] for card in found["clusters"] for part in card["mix"]) == 29


def test_several_files_are_sources_where_no_column_says_more(tmp_path: Path) -> None:
    found = inspect(sourced(tmp_path, tiny.questions(30), files=2))
    assert found["mixed_by"] == "file"
    assert found["clusters"][1]["mix"] == [{"value": "part1.jsonl", "rows": 10, "share": 1.0}]


def test_no_source_is_no_mix(tmp_path: Path) -> None:
    found = inspect(sourced(tmp_path, tiny.questions(30)))
    assert found["mixed_by"] is None
    assert [card["mix"] for card in found["clusters"]] == [[], []]


def test_a_named_column_must_be_there(tmp_path: Path) -> None:
    path = sourced(tmp_path, rows_with(topic=lambda at: at % 2))
    with pytest.raises(SettingError) as error:
        inspect(path, by="skill")
    assert str(error.value) == (
        "no row has a column 'skill'; its columns are question, answer, topic"
    )
    (tmp_path / "part0.jsonl").unlink()
    with pytest.raises(DataError, match="part0.jsonl is missing"):
        inspect(path, by="topic")
    assert inspect(path)["mixed_by"] is None


@pytest.mark.parametrize("option", ["by", "picture"])
def test_cards_and_pictures_are_of_maps(work: Path, option: str, tmp_path: Path) -> None:
    flag = {"by": "--by", "picture": "--plot"}[option]
    with pytest.raises(SettingError) as error:
        inspect(work / "selection.jsonl", **{option: tmp_path / "a.png"})
    assert str(error.value) == (
        f"{work / 'selection.jsonl'} is of the kind selection: {flag} is for cluster maps"
    )
