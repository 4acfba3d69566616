"""What do a changed file and many rows cost? ``python tests/benchmarks/incremental.py --help``

* Some rows of a scored file are replaced and as many are added; scoring again must compute those alone and
  leave every other row as it was, to the bit.
* Peak memory of scoring few rows and many (rows are repeated with a number behind the prompt, so that
  every one is new).

Every run is a real ``cluster-cli score`` in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from formats import artifacts  # noqa: E402
from formats.signatures import Signatures  # noqa: E402

COMPUTED = ("signature", "norm", "loss", "prompt_tokens", "response_tokens", "status")


def score(data: Path, output: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs the command; its wall seconds and peak resident memory in MiB."""
    command = [
        *(sys.executable, "-m", "cluster_cli", "score", str(data), "--model", arguments.model),
        *("--max-length", str(arguments.length), "-o", str(output)),
    ]
    start = time.perf_counter()
    process = os.posix_spawn(sys.executable, command, {**os.environ, "PYTHONPATH": str(ROOT)})
    _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"error: score ended with status {status}")
    seconds = time.perf_counter() - start
    return {"seconds": round(seconds, 1), "peak_mib": round(usage.ru_maxrss / 1024)}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A JSONL file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def changed_file(rows: list[dict[str, Any]], arguments: argparse.Namespace, place: Path) -> Any:
    """Scores, replaces, adds, scores again; compares every untouched row."""
    base, spare = rows[: arguments.rows], rows[arguments.rows :]
    change = arguments.change
    first = score(write(place / "data.jsonl", base), place / "s.zarr", arguments)
    before = Signatures.open(place / "s.zarr")
    old = {name: before.column(name)[:] for name in COMPUTED}
    replaced = set(random.Random(0).sample(range(len(base)), change))
    fresh = iter(spare)
    edited = [next(fresh) if i in replaced else row for i, row in enumerate(base)]
    edited += [next(fresh) for _ in range(change)]
    again = score(write(place / "data.jsonl", edited), place / "s.zarr", arguments)
    after = Signatures.open(place / "s.zarr")
    kept = [i for i in range(len(base)) if i not in replaced]
    identical = all(after.column(n)[kept].tobytes() == old[n][kept].tobytes() for n in COMPUTED)
    stats = artifacts.read_header(place / "s.zarr", "signatures").stats
    return {
        "rows": len(base),
        "replaced": change,
        "added": change,
        "first": first,
        "again": again,
        "stats": stats,
        "untouched_rows_identical": identical,
    }


def memory(rows: list[dict[str, Any]], count: int, arguments: Any, place: Path) -> dict[str, Any]:
    """Peak memory of scoring ``count`` different rows."""
    field = next(iter(rows[0]))
    many = [
        {**rows[i % len(rows)], field: f"{rows[i % len(rows)][field]} {i // len(rows) or ''}"}
        for i in range(count)
    ]
    output = place / f"m{count}.zarr"
    return {
        "rows": count,
        **score(write(place / f"m{count}.jsonl", many), output, arguments),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="+", help="JSONL, more rows than are scored first")
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--change", type=int, default=300)
    parser.add_argument("--memory", nargs="*", type=int, default=[1000, 20000])
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    lines = [t for path in arguments.data for t in path.read_text("utf-8").splitlines()]
    rows = list({line: json.loads(line) for line in lines}.values())  # no row twice
    random.Random(1).shuffle(rows)
    if len(rows) < arguments.rows + 2 * arguments.change:
        parser.error(f"{len(rows):,} different rows are too few; give more data, or lower --rows")
    record: dict[str, Any] = {
        "data": arguments.data[0].parent.name,
        "model": Path(arguments.model).name,
        "length": arguments.length,
    }
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        record["changed_file"] = changed_file(rows, arguments, place)
        record["memory"] = [memory(rows, count, arguments, place) for count in arguments.memory]
    arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
