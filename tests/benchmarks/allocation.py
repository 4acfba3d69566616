"""How long does a plan take, and how much memory? ``python tests/benchmarks/allocation.py --help``

A made-up selection (lengths lognormal around 220 tokens, cut at 1,024; clusters of unequal size) is
written in the real format, and ``cluster-cli allocate`` plans it in a process of its own. With several
numbers of rows the record shows whether time goes in proportion.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from formats.artifacts import Header, read_header  # noqa: E402
from formats.fingerprints import digest  # noqa: E402
from formats.selection import write_selection  # noqa: E402

MEDIAN, SPREAD, LONGEST = 220, 0.7, 1024


def columns(rows: int, clusters: int, seed: int = 0) -> dict[str, np.ndarray]:
    """A selection's columns: every third row of a dataset, equal quotas but for small clusters."""
    random = np.random.default_rng(seed)
    share = np.minimum(random.lognormal(0, 1, clusters), 1.0)
    cluster = random.choice(clusters, rows, p=share / share.sum()).astype(np.int32)
    weight = random.lognormal(0, 0.5, clusters)[cluster]
    tokens = np.clip(random.lognormal(np.log(MEDIAN), SPREAD, rows), 8, LONGEST)
    return {
        "row": np.arange(rows, dtype=np.int64) * 3,
        "id": random.integers(0, 256, (rows, 16), dtype=np.uint8),
        "cluster": cluster,
        "weight": weight / weight.mean(),
        "similarity": random.uniform(0, 1, rows).astype(np.float32),
        "tokens": tokens.astype(np.int32),
    }


def write(path: Path, rows: int, clusters: int, seed: int = 0) -> Path:
    """The selection as a file."""
    header = Header(
        kind="selection",
        key=digest([rows, clusters, seed]),
        params={"made": "up"},
        inputs=[],
        stats={"selected": rows},
        dataset={"sources": [{"path": "data.jsonl"}]},
        extra={"space": {}, "space_id": "", "rendering": {"max_length": LONGEST}},
    )
    write_selection(path, header, columns(rows, clusters, seed))
    return path


def measure(selection: Path, output: Path, flags: list[str]) -> dict[str, Any]:
    """One run of the command: seconds, peak resident memory, size and figures of what it wrote."""
    command = [sys.executable, "-m", "cluster_cli", "allocate", str(selection), *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    began = time.perf_counter()
    process = subprocess.Popen([*command, "-o", str(output)], env=environment)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_gib": round(used.ru_maxrss / 2**20, 3),  # Linux counts in KiB
        "written_bytes": sum(file.stat().st_size for file in output.iterdir()),
        "stats": read_header(output, "allocation").stats,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", required=True)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument(
        "--clusters", type=int, help="a thousandth of the rows, 100 to 2,000, if not"
    )
    parser.add_argument(
        "--flag", action="append", default=[], help="more for allocate: --flag=--epochs=2"
    )
    parser.add_argument("--folder", type=Path, help="where to write; a temporary one if not")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    flags = ["--ranks", str(arguments.ranks), *arguments.flag]
    results = []
    for rows in arguments.rows:
        clusters = arguments.clusters or min(2000, max(100, rows // 1000))
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            selection = write(Path(folder) / "selection.jsonl", rows, clusters)
            line = {"rows": rows, "clusters": clusters}
            results.append(line | measure(selection, Path(folder) / "allocation", flags))
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    record = {"ranks": arguments.ranks, "flags": arguments.flag, "results": results}
    arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
