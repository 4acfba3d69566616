"""Evaluations written and read back, and pairs of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.artifacts import Header
from formats.errors import ArtifactError, ArtifactMissingError
from formats.evaluation import Evaluation, groups, paired, ratios, write_evaluation


def examples(**more: Any) -> dict[str, Any]:
    return {
        "row": [0, 2, 5],
        "id": [f"{i:032x}" for i in range(3)],
        "loss": [1.0, 2.0, 3.0],
        "tokens": [4, 1, 1],
        "groups": {"kind": ["a", "b", "a"]},
        **more,
    }


def write(path: Path, **more: Any) -> Path:
    header = Header("evaluation", "k" * 64, {}, [])
    write_evaluation(path, header, results={}, tasks={}, examples=examples(**more))
    return path


def test_it_is_one_json_object_on_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "e.json", f1=[0.5, None, 1.0])
    text = path.read_text()
    assert text.count("\n") == 1
    assert json.loads(text)["format"] == "cluster-cli/evaluation"
    found = Evaluation.open(path)
    assert len(found) == 3
    np.testing.assert_array_equal(found.column("f1"), [0.5, np.nan, 1.0])
    with pytest.raises(ArtifactError) as error:
        found.column("f2")
    assert str(error.value) == (
        f"{path} has no column of numbers 'f2'; rebuild it with `cluster-cli evaluate ... -o {path}`"
    )


def test_ratios_are_sums_over_examples_or_tokens() -> None:
    found = ratios(examples(accuracy=[1.0, None, 0.0]))
    assert list(found) == ["loss", "token_loss", "accuracy"]
    top, bottom = found["token_loss"]
    assert top.sum() / bottom.sum() == (4 + 2 + 3) / 6
    np.testing.assert_array_equal(found["accuracy"][1], [1.0, np.nan, 1.0])


def test_groups_are_places_by_value() -> None:
    found = groups(examples())["kind"]
    assert {value: places.tolist() for value, places in found.items()} == {"a": [0, 2], "b": [1]}


def test_pairs_are_of_the_examples_both_have(tmp_path: Path) -> None:
    first = Evaluation.open(write(tmp_path / "a.json", f1=[0.5, None, 1.0]))
    second = Evaluation.open(write(tmp_path / "b.json", f1=[0.25, 1.0, 0.0]))
    top_RN, bottom_RN = paired([first, second], "f1")
    assert top_RN.tolist() == [[0.5, 1.0], [0.25, 0.0]]
    assert bottom_RN.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    other = Evaluation.open(write(tmp_path / "c.json", row=[0, 2, 6]))
    with pytest.raises(ArtifactError) as error:
        paired([first, other], "loss")
    assert str(error.value) == (
        f"{first.path} and {other.path} are not of the same examples; evaluate both on the same data"
    )
    with pytest.raises(ArtifactError, match="has no verbatim"):
        paired([first, second], "verbatim")


def test_what_is_missing_or_uneven_is_said(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissingError) as missing:
        Evaluation.open(tmp_path / "none.json")
    assert str(missing.value) == (
        f"{tmp_path}/none.json does not exist; make it with `cluster-cli evaluate ... -o "
        f"{tmp_path}/none.json`"
    )
    path = write(tmp_path / "e.json", tokens=[1])
    with pytest.raises(ArtifactError, match="its columns differ in length"):
        Evaluation.open(path)
    whole = json.loads(path.read_text())
    del whole["results"]
    path.write_text(json.dumps(whole))
    with pytest.raises(ArtifactError, match="has no results"):
        Evaluation.open(path)
