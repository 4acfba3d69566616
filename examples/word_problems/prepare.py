"""Split a file of word problems into train and dev parts for `make bench-words`.

The file is a CSV with the columns Question and Equation, such as MAWPS and ASDiv in SVAMP's form
(Patel, Bhattamishra and Goyal 2021). A response is the equation in prefix notation; its lesson is the
sequence of its operators, whatever the story is about.

    python examples/word_problems/prepare.py train.csv --dev 500 -o work/words
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
from pathlib import Path

Row = dict[str, str]


def read(path: Path) -> list[Row]:
    """Every question once: with two equations, the first stays.

    Raises:
        SystemExit: the file has not the columns Question and Equation.
    """
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.DictReader(file)
        missing = {"Question", "Equation"} - set(lines.fieldnames or ())
        if missing:
            raise SystemExit(
                f"error: {path} has no column {' and no column '.join(sorted(missing))}"
            )
        rows: dict[str, Row] = {}
        for line in lines:
            prompt, response = (" ".join(line[name].split()) for name in ("Question", "Equation"))
            rows.setdefault(prompt, {"prompt": prompt, "response": response})
    return [row | {"operators": operators(row["response"])} for row in rows.values()]


def operators(equation: str) -> str:
    """`- + number0 number1 number2` is `- +`."""
    return " ".join(token for token in equation.split() if token in "+-*/")


def split(rows: list[Row], dev: int) -> tuple[list[Row], list[Row]]:
    """Train and dev part; a row's place is decided by a hash of its prompt, not by the file's order."""
    ordered = sorted(rows, key=lambda row: hashlib.sha256(row["prompt"].encode()).digest())
    return ordered[dev:], ordered[:dev]


def main() -> None:
    """Write train.jsonl and dev.jsonl."""
    parser = argparse.ArgumentParser(description="Split word problems into train and dev parts.")
    parser.add_argument("csv", type=Path)
    parser.add_argument("--dev", type=int, default=500, help="dev rows (default 500)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    given = parser.parse_args()
    rows = read(given.csv)
    if not 0 < given.dev < len(rows):
        raise SystemExit(f"error: --dev must be from 1 to {len(rows) - 1}, got {given.dev}")
    given.output.mkdir(parents=True, exist_ok=True)
    for name, part in zip(("train", "dev"), split(rows, given.dev), strict=True):
        text = "".join(json.dumps(row) + "\n" for row in part)
        (given.output / f"{name}.jsonl").write_text(text, encoding="utf-8")
        print(f"{given.output / name}.jsonl: {len(part):,} rows")


if __name__ == "__main__":
    main()
