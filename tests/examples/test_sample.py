"""Rows drawn for the comparisons of SmolLM2; those are `make bench-medquad` and `make bench-code`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "smollm" / "sample.py"
ROWS = [{"text": f"Add {i}.", "code": f"x + {i}", "kind": "ab"[i % 2]} for i in range(8)]
FIELDS = ("--field", "prompt=text", "--field", "response=code")


def sample(folder: Path, rows: object, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = [sys.executable, str(SCRIPT), "a.jsonl", *words]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)


def test_the_same_rows_whatever_their_order(tmp_path: Path) -> None:
    asked = ("--rows", "3", "--group", "kind", *FIELDS)
    done = sample(tmp_path, ROWS, *asked)
    assert done.returncode == 0, done.stderr
    assert sample(tmp_path, [*reversed(ROWS), ROWS[0]], *asked).stdout == done.stdout
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 3
    for row in found:
        question, answer = row["messages"]
        given = next(each for each in ROWS if each["text"] == question["content"])
        assert (answer["role"], answer["content"]) == ("assistant", given["code"])
        assert row["group"] == given["kind"]


def test_a_word_for_all(tmp_path: Path) -> None:
    done = sample(tmp_path, ROWS, "--rows", "2", "--group", "=sums", *FIELDS)
    assert [json.loads(line)["group"] for line in done.stdout.splitlines()] == ["sums", "sums"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--rows", "9", "--group", "kind", *FIELDS),
            "error: a.jsonl has 8 distinct rows, 9 are asked\n",
        ),
        (
            ("--rows", "1", "--group", "kin", *FIELDS),
            "error: a.jsonl:{line} has no column 'kin'\n",
        ),
        (
            ("--rows", "1", "--group", "kind", "--field", "text"),
            "error: --field needs ROLE=COLUMN\n",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = sample(tmp_path, ROWS, *words)
    line = done.stderr.partition("a.jsonl:")[2].partition(" ")[0]
    assert (done.returncode, done.stderr) == (1, message.format(line=line))
    assert done.stdout == ""
