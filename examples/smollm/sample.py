"""A few rows of a file, as chat messages with a column `group`, on stdout: pools for `make bench-medquad`.

Which rows is decided by a hash of what they say, not by their order, so parts of different files can be put
together and drawn again elsewhere.

    python examples/smollm/sample.py medquad/train.jsonl --rows 480 --group qtype > work/medquad/train.jsonl
    python examples/smollm/sample.py mbpp/train.jsonl --rows 120 --group =mbpp \
        --field prompt=text --field response=code >> work/code/train.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from formats.data import DataOptions, Example, open_dataset
from formats.errors import ClusterCliError


def draw(path: str, rows: int, fields: list[str]) -> list[Example]:
    """So many distinct rows, in the order of their ids.

    Raises:
        SystemExit: the file has fewer, or a field is not ROLE=COLUMN.
        ClusterCliError: it cannot be read.
    """
    pairs = tuple(tuple(field.split("=", 1)) for field in fields)
    if any(len(pair) != 2 for pair in pairs):
        raise SystemExit("error: --field needs ROLE=COLUMN")
    with open_dataset([path], DataOptions(fields=pairs, on_bad_row="skip")) as dataset:
        distinct = {example.id: example for example in dataset}
    if len(distinct) < rows:
        raise SystemExit(f"error: {path} has {len(distinct):,} distinct rows, {rows:,} are asked")
    return [distinct[key] for key in sorted(distinct)[:rows]]


def group(example: Example, named: str) -> str:
    """The value of a column, or after `=` the word itself."""
    if named.startswith("="):
        return named[1:]
    if named not in example.columns:
        raise SystemExit(f"error: {example.file}:{example.line} has no column {named!r}")
    return str(example.columns[named])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Draw rows of a file as chat messages.")
    parser.add_argument("file")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--group", required=True, metavar="COLUMN|=WORD")
    parser.add_argument("--field", action="append", default=[], metavar="ROLE=COLUMN")
    given = parser.parse_args()
    try:
        examples = draw(given.file, given.rows, given.field)
    except ClusterCliError as error:
        raise SystemExit(f"error: {error}") from error
    for example in examples:
        print(json.dumps({"messages": example.messages, "group": group(example, given.group)}))


if __name__ == "__main__":
    main()
