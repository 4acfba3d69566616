"""Damage to an evaluation is found and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.artifacts import Header
from formats.errors import ArtifactError
from formats.evaluation import write_evaluation
from stages.evaluate.figures import summarise
from stages.validate import validate


@pytest.fixture
def path(tmp_path: Path) -> Path:
    examples = {
        "row": [0, 2, 5],
        "id": [f"{i:032x}" for i in range(3)],
        "loss": [1.0, 2.0, 3.0],
        "tokens": [4, 1, 1],
        "f1": [0.5, None, 1.0],
        "groups": {"kind": ["a", "b", "a"]},
    }
    header = Header("evaluation", "k" * 64, {}, [], {"measured": 3, "tokens": 6})
    results = summarise(examples, 100, 0)
    write_evaluation(tmp_path / "e.json", header, results=results, tasks={}, examples=examples)
    return tmp_path / "e.json"


def test_a_whole_one_passes(path: Path) -> None:
    assert validate(path) == "evaluation, 3 examples, 3 metrics"


def put(*keys: Any) -> Callable[[Any, Any], None]:
    def change(whole: Any, value: Any) -> None:
        for key in keys[:-1]:
            whole = whole[key]
        whole[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("examples", "row", 1), 0, "row 0 comes after row 0; rows must ascend"),
        (("examples", "id", 1), "zz", "the id of row 2 is 'zz', not 32 hexadecimal digits"),
        (("examples", "loss", 1), -1.0, "loss of row 2 is -1"),
        (("examples", "loss", 1), None, "loss of row 2 is nan"),
        (("examples", "f1", 2), 1.5, "f1 of row 5 is 1.5"),
        (("examples", "tokens", 1), 2, "tokens is 7 by the examples, the header says 6"),
        (("stats", "measured"), 4, "measured is 3 by the examples, the header says 4"),
        (
            ("results", "overall", "loss", "value"),
            1.5,
            "loss of overall is 2 by 3 examples, the results say 1.5 by 3",
        ),
        (
            ("results", "by", "kind", "a", "f1", "examples"),
            9,
            "f1 of kind a is 0.75 by 2 examples, the results say 0.75 by 9",
        ),
        (
            ("results", "overall", "f1", "low"),
            None,
            "f1 of overall has no interval: None to 1.0",
        ),
        (
            ("results", "by", "kind"),
            {},
            "the groups of kind are not those of its examples",
        ),
    ],
)
def test_damage_is_found(path: Path, keys: tuple[Any, ...], value: Any, message: str) -> None:
    whole = json.loads(path.read_text())
    put(*keys)(whole, value)
    path.write_text(json.dumps(whole) + "\n")
    with pytest.raises(ArtifactError) as error:
        validate(path)
    assert str(error.value) == f"{path}: {message}"
