"""What an artifact says about itself, and about where it came from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.clusters import Clusters
from stages.cluster import cluster
from stages.inspect import inspect
from stages.inspect.cards import cards, one_line
from stages.inspect.report import as_lines
from tests import prepared
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
    made, missing = cards(opened, 2)
    assert missing is not None  # the made-up signatures have no data
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
    from tests import tiny

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
