"""Do clusters follow known lessons, and not topics? ``python tests/benchmarks/lessons.py --help``

For each kind of signature, with and without a warm-up, and each number of clusters: normalised mutual
information, adjusted Rand index and purity of the clusters with columns of the data, over several seeds of
projection, warm-up and k-means together. TF-IDF of the text, clustered in the same way, is the control.

A label is a column, or ``operators:COLUMN`` for the operators of an equation, or ``rounded:COLUMN``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from formats.clusters import Clusters  # noqa: E402
from formats.data import DataOptions, open_dataset  # noqa: E402
from stages.cluster import cluster  # noqa: E402
from stages.score import score  # noqa: E402
from stages.score.stage import ScoreSettings  # noqa: E402

VARIANTS: dict[str, dict[str, Any]] = {
    "gradient, rank 64 (default)": {},
    "gradient, rank 16": {"rank": 16, "dims": 1024},
    "gradient, last layer": {"layers": "last:1"},
    "head (forward only)": {"kind": "head"},
    "mean hidden state (topic)": {"kind": "embedding"},
}


def labels_of(data: str, options: DataOptions, names: list[str]) -> dict[str, list[str]]:
    """Known lessons and topics of every row."""
    found: dict[str, list[str]] = {name: [] for name in names}
    with open_dataset([data], options) as dataset:
        for example in dataset:
            for name in names:
                how, _, column = name.rpartition(":")
                value = str(example.columns[column])
                if how == "operators":
                    value = re.sub(r"[^-+*/()]", "", value)
                found[name].append(value)
    return found


def texts_of(data: str, options: DataOptions) -> list[str]:
    """Prompt and response of every row, for TF-IDF."""
    with open_dataset([data], options) as dataset:
        return [" ".join(str(m["content"]) for m in example.messages) for example in dataset]


def measure(truth: list[str], found: np.ndarray) -> dict[str, float]:
    """Agreement over clustered rows."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
    from sklearn.metrics.cluster import contingency_matrix

    kept = np.flatnonzero(found >= 0)
    true, got = np.array(truth)[kept], found[kept]
    return {
        "mutual_information": float(normalized_mutual_info_score(true, got)),
        "adjusted_rand": float(adjusted_rand_score(true, got)),
        "purity": float(contingency_matrix(true, got).max(axis=0).sum() / len(kept)),
    }


def tfidf_clusters(texts: list[str], count: int, seed: int) -> np.ndarray:
    """k-means on TF-IDF rows."""
    from sklearn.cluster import KMeans
    from sklearn.feature_extraction.text import TfidfVectorizer

    rows = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
    return KMeans(count, n_init=4, random_state=seed).fit(rows).labels_


def signature_clusters(
    arguments: argparse.Namespace, options: DataOptions, settings: ScoreSettings, folder: Path
) -> dict[str, np.ndarray]:
    """Labels for every number of clusters, with and without centring."""
    score(
        [arguments.data],
        arguments.model,
        folder / "s",
        settings=settings,
        options=options,
        force=True,
    )
    found = {}
    for count in arguments.clusters:
        for centre in (True, False):
            cluster(
                folder / "s",
                folder / "c",
                clusters=count if count == "auto" else int(count),
                centre=centre,
                seed=settings.seed,
                force=True,
            )
            name = f"K {count}, {'centred' if centre else 'not centred'}"
            found[name] = Clusters.open(folder / "c").label
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--model", required=True)
    parser.add_argument("--field", action="append", default=[])
    parser.add_argument("--label", action="append", required=True)
    parser.add_argument("--clusters", nargs="+", default=["30", "auto"])
    parser.add_argument("--warmup", nargs="+", type=float, default=[0.0, 0.05])
    parser.add_argument("--only", help="variants whose name contains this")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    fields = tuple((f.partition("=")[0], f.partition("=")[2]) for f in arguments.field)
    options = DataOptions(fields=fields, limit=arguments.limit)
    truth = labels_of(arguments.data, options, arguments.label)
    texts = texts_of(arguments.data, options)
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for seed in range(arguments.seeds):
        found = {
            ("TF-IDF of the text", f"K {count}"): tfidf_clusters(texts, int(count), seed)
            for count in arguments.clusters
            if count != "auto"
        }
        for name, changes in VARIANTS.items():
            for fraction in arguments.warmup:
                if arguments.only and arguments.only not in name:
                    continue
                settings = ScoreSettings(
                    **changes, seed=seed, warmup_fraction=fraction, max_length=arguments.length
                )
                with tempfile.TemporaryDirectory() as folder:
                    grouped = signature_clusters(arguments, options, settings, Path(folder))
                warmed = f", warmed up on {fraction:.0%}" if fraction else ""
                found |= {(name + warmed, how): labels for how, labels in grouped.items()}
        for key, labels in found.items():
            scores = {label: measure(truth[label], labels) for label in arguments.label}
            lines.setdefault(key, []).append({"clusters": int(labels.max()) + 1, **scores})
            print(json.dumps([seed, *key, scores]), file=sys.stderr, flush=True)
    record = {
        "data": f"{Path(arguments.data).parent.name}/{Path(arguments.data).name}",
        "model": Path(arguments.model).name,
        "rows": len(texts),
        "seeds": arguments.seeds,
        "results": [
            {"signature": name, "clustering": how, "by_seed": by_seed}
            for (name, how), by_seed in lines.items()
        ],
    }
    arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
