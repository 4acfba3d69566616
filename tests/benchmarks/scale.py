"""How long and how much memory do cluster and select take? ``python tests/benchmarks/scale.py --help``

Signatures of planted lessons, K unit directions in D dimensions plus noise, are written block by block in
the real format; the real commands then run on them, each as a process of its own that is watched: wall
clock, processor time (which other work on the machine hardly changes), and the peak of its resident memory,
children included. ``agreement`` is the adjusted Rand index of the map with the planted lessons, so that
speed is not bought with a poor map. The data are deleted afterwards: a million rows of 4,096 numbers take
8 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from formats import artifacts, blocks, signatures  # noqa: E402
from formats.clusters import Clusters  # noqa: E402
from formats.fingerprints import digest  # noqa: E402

BLOCK_BYTES = 32 << 20
EVERY = 0.05  # seconds between two looks at a process's memory


def plant(path: Path, rows: int, dims: int, lessons: int, noise: float, seed: int) -> np.ndarray:
    """Writes ``signatures.zarr`` and returns the lesson of every row.

    Sizes of the lessons fall like 1 / sqrt(rank), so that the largest of 1,000 holds 32 times as many
    rows as the smallest.
    """
    random = np.random.default_rng(seed)
    direction = random.standard_normal((lessons, dims), dtype=np.float32)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    share = 1 / np.sqrt(np.arange(1, lessons + 1))
    lesson = random.choice(lessons, rows, p=share / share.sum())
    block = max(1, BLOCK_BYTES // (2 * dims))
    group = signatures.create(path, rows, dims, block)
    for start in range(0, rows, block):
        part = slice(start, min(start + block, rows))
        spread = random.standard_normal((part.stop - start, dims), dtype=np.float32)
        made = direction[lesson[part]] + np.float32(noise / np.sqrt(dims)) * spread
        length = np.linalg.norm(made, axis=1)
        group["signature"][part] = (made / length[:, None]).astype(np.float16)
        group["norm"][part] = length
    fill(group, rows, random)
    header = artifacts.Header(
        kind="signatures",
        key=digest([rows, dims, lessons, noise, seed]),
        params={},
        inputs=[],
        stats={},
        extra={"space": {"planted": dims}, "space_id": digest(dims), "rendering": {}},
    )
    blocks.seal(path, header.to_json())
    return lesson


def fill(group: Any, rows: int, random: np.random.Generator) -> None:
    """The columns beside the signature."""
    group["example_id"][...] = random.integers(0, 256, (rows, 16), dtype=np.uint8)
    group["loss"][...] = random.uniform(0.5, 4, rows).astype(np.float32)
    group["prompt_tokens"][...] = random.integers(5, 200, rows, dtype=np.int32)
    group["response_tokens"][...] = random.integers(5, 500, rows, dtype=np.int32)
    group["status"][...] = np.zeros(rows, dtype=np.uint8)


def watch(arguments: list[str]) -> dict[str, float]:
    """Runs ``cluster-cli`` and measures it.

    Returns:
        ``seconds``; ``cpu_seconds``; and ``peak_gib``: the largest sum of the resident memory of the
        process and its children. Of a single process the kernel's own peak is taken.
    """
    import psutil

    command = [sys.executable, "-m", "cluster_cli", *arguments]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    began = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})
    peak, watched = 0, psutil.Process(process.pid)
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        peak = max(peak, resident(watched))
        time.sleep(EVERY)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"`cluster-cli {' '.join(arguments)}` failed")
    peak = max(peak, usage.ru_maxrss * 1024)
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_gib": round(peak / 2**30, 3),
    }


def resident(process: Any) -> int:
    """Bytes of a process and its children together."""
    import psutil

    total = 0
    try:
        for member in (process, *process.children(recursive=True)):
            total += member.memory_info().rss
    except psutil.Error:  # one of them has just ended
        pass
    return total


def measure(rows: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One line of the table."""
    from sklearn.metrics import adjusted_rand_score

    began = time.monotonic()
    source, found, chosen = folder / "s.zarr", folder / "c.zarr", folder / "selection.jsonl"
    lesson = plant(source, rows, options.dims, options.clusters, options.noise, options.seed)
    line: dict[str, Any] = {"rows": rows, "write_seconds": round(time.monotonic() - began, 2)}
    more = ["--ranks", str(options.ranks)] if options.ranks > 1 else []
    count = str(options.clusters)
    line["cluster"] = watch(["cluster", str(source), "-o", str(found), "-k", count, *more])
    line["select"] = watch(
        ["select", str(found), "--fraction", str(options.fraction), "-o", str(chosen)]
    )
    opened = Clusters.open(found)
    line["clusters"] = opened.clusters
    line["mean_similarity"] = opened.header.stats["mean_similarity"]
    line["agreement"] = round(float(adjusted_rand_score(lesson, opened.label)), 4)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--dims", type=int, default=4096)
    parser.add_argument("--clusters", type=int, default=1000, help="planted, and asked for")
    parser.add_argument("--fraction", type=float, default=0.31)
    parser.add_argument("--noise", type=float, default=1.5, help="length of a row's noise")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the data are written for a while")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    record = {
        name: getattr(options, name)
        for name in ("dims", "clusters", "fraction", "noise", "ranks", "seed")
    }
    record |= {"cores": len(os.sched_getaffinity(0)), "results": []}
    for rows in options.rows:
        folder = Path(tempfile.mkdtemp(prefix="scale-", dir=options.folder))
        try:
            record["results"].append(measure(rows, options, folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(json.dumps(record["results"][-1]), file=sys.stderr, flush=True)
        options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
