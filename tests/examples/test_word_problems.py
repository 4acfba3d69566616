"""The word problems' preparation; their comparison is `make bench-words`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "word_problems"
CSV = """\
Question,Equation,Answer
"Ann has number0 figs , and number1 more . How many ?",+ number0 number1,5
Bo  had number0 and gave number1 to number2 friends .,- number0 * number1 number2,2
"Ann has number0 figs , and number1 more . How many ?",- number0 number1,5
Cy shares number0 among number1 .,/ number0 number1,3
"""


def prepare(folder: Path, text: str, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "a.csv").write_text(text)
    words = [sys.executable, str(FOLDER / "prepare.py"), "a.csv", "-o", "out", *more]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def rows(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_every_question_stands_once_with_its_operators(tmp_path: Path) -> None:
    done = prepare(tmp_path, CSV, "--dev", "1")
    assert done.returncode == 0, done.stderr
    train, dev = (rows(tmp_path / "out" / f"{name}.jsonl") for name in ("train", "dev"))
    assert (len(train), len(dev)) == (2, 1)
    found = {row["response"]: row["operators"] for row in train + dev}
    assert found == {
        "+ number0 number1": "+",
        "- number0 * number1 number2": "- *",
        "/ number0 number1": "/",
    }
    assert {row["prompt"] for row in train + dev} >= {
        "Bo had number0 and gave number1 to number2 friends ."
    }


def test_a_part_does_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    head, *lines = CSV.splitlines(keepends=True)
    prepare(tmp_path, CSV.replace(lines[2], ""), "--dev", "1")
    first = rows(tmp_path / "out" / "dev.jsonl")
    prepare(tmp_path, head + "".join([lines[3], lines[1], lines[0]]), "--dev", "1")
    assert rows(tmp_path / "out" / "dev.jsonl") == first


@pytest.mark.parametrize(
    ("text", "dev", "message"),
    [
        ("Question\nx\n", "1", "error: a.csv has no column Equation\n"),
        (CSV, "3", "error: --dev must be from 1 to 2, got 3\n"),
    ],
)
def test_what_cannot_be_split_is_said(tmp_path: Path, text: str, dev: str, message: str) -> None:
    done = prepare(tmp_path, text, "--dev", dev)
    assert (done.returncode, done.stderr) == (1, message)
    assert not (tmp_path / "out").exists()
