"""Does an old map serve new data? ``python tests/benchmarks/reuse.py SIGNATURES -o reuse.json``

A scored dataset is split into halves, at random by content. The first half is mapped; the second is
assigned to that map with ``--reuse``. What it gets is compared with a map fitted on both halves, on the
rows of the second: adjusted Rand index and normalised mutual information. Two fits of the same data do not
agree perfectly either, so the fit on both halves is done again with another seed: ``refitted`` is the
agreement that can be hoped for. Seconds are those of the whole stage, reading and writing included.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from formats import artifacts, blocks, signatures  # noqa: E402
from formats.clusters import Clusters  # noqa: E402
from formats.fingerprints import digest  # noqa: E402
from formats.signatures import Signatures  # noqa: E402
from stages.cluster import cluster  # noqa: E402
from stages.cluster.contents import find_contents  # noqa: E402


def halves(source: Signatures, seed: int) -> list[np.ndarray]:
    """Rows of either half, ascending; rows of equal content stay together."""
    contents = find_contents(source.column("example_id"), source.column("status"))
    side = np.random.default_rng(seed).permutation(len(contents)) % 2
    side_N = np.where(contents.of_row >= 0, side[contents.of_row], -1)
    return [np.flatnonzero(side_N == half) for half in (0, 1)]


def write_part(source: Signatures, rows: np.ndarray, path: Path) -> Path:
    """The signatures of some rows as an artifact of their own."""
    group = signatures.create(path, len(rows), source.dims, source.block)
    for name in ("example_id", "norm", "loss", "prompt_tokens", "response_tokens", "status"):
        group[name][...] = source.column(name)[rows]
    for start in range(0, source.rows, source.block):
        part = slice(start, min(start + source.block, source.rows))
        low, high = np.searchsorted(rows, (part.start, part.stop))
        if low < high:
            chosen = source.column("signature", part)[rows[low:high] - start]
            group["signature"][low:high] = chosen
    key = digest([source.header.key, rows.tolist()])
    blocks.seal(path, replace(source.header, key=key, dataset={}).to_json())
    return path


def timed(*arguments: Any, **settings: Any) -> tuple[float, artifacts.Header]:
    began = time.monotonic()
    header = cluster(*arguments, **settings)
    return round(time.monotonic() - began, 3), header


def agreement(left: np.ndarray, right: np.ndarray) -> dict[str, float]:
    """Of two labellings of the same rows."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    return {
        "adjusted_rand": round(float(adjusted_rand_score(left, right)), 4),
        "mutual_information": round(float(normalized_mutual_info_score(left, right)), 4),
    }


def trial(source: Signatures, clusters: int | str, seed: int, folder: Path) -> dict[str, Any]:
    """One split."""
    first, second = halves(source, seed)
    old_half = write_part(source, first, folder / "first.s")
    new_half = write_part(source, second, folder / "second.s")
    both = write_part(source, np.sort(np.concatenate([first, second])), folder / "both.s")
    old, new = folder / "first.c", folder / "second.c"
    fit_half, mapped = timed(old_half, old, clusters=clusters, seed=seed)
    count = mapped.stats["clusters"]
    reuse, assigned = timed(new_half, new, reuse=old, seed=seed)
    fit_both, _ = timed(both, folder / "both.c", clusters=count, seed=seed)
    timed(both, folder / "again.c", clusters=count, seed=seed + 1000)
    there = np.isin(np.sort(np.concatenate([first, second])), second)
    whole, again = (Clusters.open(folder / f"{name}.c").label[there] for name in ("both", "again"))
    return {
        "seed": seed,
        "clusters": count,
        "rows": [len(first), len(second)],
        "reused": agreement(Clusters.open(new).label, whole),
        "refitted": agreement(again, whole),
        "seconds": {"fit_half": fit_half, "reuse": reuse, "fit_both": fit_both},
        "drift": {name: assigned.stats["drift"][name] for name in ("far", "moved", "refit")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("signatures", type=Path)
    parser.add_argument("--clusters", nargs="+", default=["auto"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    source, trials = Signatures.open(options.signatures), []
    for text in options.clusters:
        clusters = text if text == "auto" else int(text)
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory(prefix="reuse-") as folder:
                trials.append({"asked": clusters, **trial(source, clusters, seed, Path(folder))})
            print(json.dumps(trials[-1]), file=sys.stderr, flush=True)
    record = {"rows": source.rows, "dims": source.dims, "trials": trials}
    options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
