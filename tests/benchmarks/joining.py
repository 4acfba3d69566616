"""Do joined clusters follow known lessons better than k-means? ``python tests/benchmarks/joining.py -h``

For a scored dataset whose lessons are known by a column: adjusted Rand index of the column with the map of
k-means alone and with the joined one (``stages.cluster.join``), with as many clusters as ``auto`` finds and
with the numbers given, over several seeds. TF-IDF of the text goes through the same two, as the control.
A label is a column, or ``operators:COLUMN`` for the operators of an equation.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from formats.data import open_reference  # noqa: E402
from formats.signatures import OK, TRUNCATED, Signatures  # noqa: E402
from stages.cluster import auto  # noqa: E402
from stages.cluster.assign import labels  # noqa: E402
from stages.cluster.fit import centre_rows, fit, mean_direction  # noqa: E402
from stages.cluster.join import fit_joined  # noqa: E402
from tests.benchmarks.lessons import label_of  # noqa: E402

FITS: dict[str, Callable[..., np.ndarray]] = {"k-means": fit, "joined": fit_joined}


def text_rows(texts: list[str], dims: int) -> np.ndarray:
    """TF-IDF reduced to its leading directions, unit rows (N, dims) float32."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    sparse = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
    dims = min(dims, sparse.shape[1] - 1)
    return unit(TruncatedSVD(dims, random_state=0).fit_transform(sparse))


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows at length one, float32."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(length > 0, length, 1)).astype(np.float32)


def trial(
    row_ND: np.ndarray, truth: dict[str, np.ndarray], numbers: list[int], seed: int
) -> list[dict[str, Any]]:
    """One line per number of clusters and way of fitting."""
    from sklearn.metrics import adjusted_rand_score

    weight_N = np.ones(len(row_ND))
    part = np.random.default_rng(seed).permutation(len(row_ND))[: auto.SAMPLE]
    began = time.process_time()
    chosen = auto.choose(row_ND[part], weight_N[part], seed).clusters
    searched = time.process_time() - began
    lines = []
    for clusters in (chosen, *numbers):
        for name, make in FITS.items():
            began = time.process_time()
            found = labels(row_ND, make(row_ND, weight_N, clusters, seed, tries=4))
            lines.append(
                {
                    "fit": name,
                    "asked": "auto" if clusters == chosen else clusters,
                    "clusters": clusters,
                    "adjusted_rand": {
                        label: round(float(adjusted_rand_score(values, found)), 4)
                        for label, values in truth.items()
                    },
                    "seconds": round(time.process_time() - began, 2),
                    "search_seconds": round(searched, 2),
                }
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("signatures", type=Path, nargs="+", help="of one dataset, several kinds")
    parser.add_argument("--label", action="append", required=True)
    parser.add_argument("--clusters", nargs="*", type=int, default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    found: dict[str, Any] = {"seeds": options.seeds, "results": []}
    for number, path in enumerate(options.signatures):
        source = Signatures.open(path)
        status = source.column("status")
        usable = np.flatnonzero((status == OK) | (status == TRUNCATED))
        with open_reference(source.header.dataset, path.parent) as data:
            examples = [data[row] for row in usable.tolist()]
        truth = {n: np.array([label_of(e, n) for e in examples]) for n in options.label}
        kind = str(source.header.params.get("kind", "gradient"))
        spaces = {kind: np.concatenate([block for _, block in source.stream()])[usable]}
        if not number:
            texts = [" ".join(str(m["content"]) for m in e.messages) for e in examples]
            spaces["TF-IDF of the text"] = text_rows(texts, 512)
            found |= {"data": Path(source.header.dataset["sources"][0]["path"]).name}
            found |= {"rows": len(usable), "classes": {n: len(set(v)) for n, v in truth.items()}}
        for name, rows in spaces.items():
            for centred in (True, False):
                row_ND = unit(rows)
                if centred:
                    centre_rows(row_ND, mean_direction(row_ND, np.ones(len(row_ND))))
                for seed in range(options.seeds):
                    for line in trial(row_ND, truth, options.clusters, seed):
                        entry = {"signature": name, "centred": centred, "seed": seed, **line}
                        found["results"].append(entry)
                        print(json.dumps(entry), file=sys.stderr, flush=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
