"""Do clusters follow known lessons, and not topics? ``python tests/benchmarks/lessons.py --help``

For each kind of signature, with and without a warm-up, centred and not: normalised mutual information,
adjusted Rand index and purity of k-means clusters with columns of the data, over several seeds of
projection, warm-up and k-means together. TF-IDF of the text, clustered in the same way, is the control.

A label is a column, or ``operators:COLUMN`` for the operators of an equation.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from formats.data import DataOptions, Example, open_dataset  # noqa: E402
from formats.rendering import Rendered, Renderer  # noqa: E402
from stages import models  # noqa: E402
from stages.batching import batches  # noqa: E402
from stages.cluster.fit import centre_rows, fit, mean_direction  # noqa: E402
from stages.reporting import Silent  # noqa: E402
from stages.score import meter, warmup  # noqa: E402
from stages.score.batches import Signer, pad, sign_rows  # noqa: E402
from stages.score.controls import EmbeddingSigner  # noqa: E402
from stages.score.settings import ScoreSettings  # noqa: E402
from stages.score.signers import GradientSigner, HeadSigner  # noqa: E402
from tests.benchmarks import trials  # noqa: E402

BUDGET = 2048  # padded tokens in a batch
Build = Callable[[Any, int, list[Rendered]], Any]


def gradient(rank: int = 64, dims: int = 4096, layers: str = "all") -> Build:
    """Projected gradients."""
    return lambda model, seed, rows: GradientSigner(
        model, rank=rank, dims=dims, seed=seed, layers=layers
    )


def adaptive(power: float) -> Build:
    """Projected gradients in an optimizer's geometry."""

    def build(model: Any, seed: int, rows: list[Rendered]) -> Any:
        sample = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))[:64]]
        padded = [
            pad([sample[i] for i in members], "cpu")
            for members in batches([len(row.input_ids) for row in sample], BUDGET)
        ]
        return trials.adaptive(gradient()(model, seed, rows), padded, power)

    return build


VARIANTS: dict[str, Build] = {
    "gradient, rank 64 (default)": gradient(),
    "gradient, rank 16": gradient(rank=16),
    "gradient, rank 4": gradient(rank=4),
    "gradient, last layer": gradient(layers="last:1"),
    "gradient, every module at length one": lambda *given: trials.unit_modules(gradient()(*given)),
    "gradient / second moments^1/2 (Adam)": adaptive(1.0),
    "gradient / second moments^1/4": adaptive(0.5),
    "head (forward only)": lambda model, seed, rows: HeadSigner(
        model, rank=64, dims=4096, seed=seed
    ),
    "head gradient straight to every block's outputs": lambda model, seed, rows: (
        trials.StraightThroughSigner(model, rank=64, dims=4096, seed=seed)
    ),
    "mean hidden state (topic)": lambda model, seed, rows: EmbeddingSigner(model),
}


def label_of(example: Example, name: str) -> str:
    """A known lesson or topic of one row."""
    how, _, column = name.rpartition(":")
    value = str(example.columns[column])
    return re.sub(r"[^-+*/()]", "", value) if how == "operators" else value


def measure(truth: np.ndarray, found: np.ndarray) -> dict[str, float]:
    """Agreement of two groupings."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
    from sklearn.metrics.cluster import contingency_matrix

    return {
        "mutual_information": float(normalized_mutual_info_score(truth, found)),
        "adjusted_rand": float(adjusted_rand_score(truth, found)),
        "purity": float(contingency_matrix(truth, found).max(axis=0).sum() / len(found)),
    }


def tfidf_clusters(texts: list[str], count: int, seed: int) -> np.ndarray:
    """k-means on TF-IDF rows."""
    from sklearn.cluster import KMeans
    from sklearn.feature_extraction.text import TfidfVectorizer

    rows = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
    return KMeans(count, n_init=4, random_state=seed).fit(rows).labels_


def clusters(unit_ND: np.ndarray, count: int, seed: int, centre: bool) -> np.ndarray:
    """Spherical k-means as the cluster stage does it, with four starts: labels (N,)."""
    rows_ND, weight_N = unit_ND.astype(np.float32), np.ones(len(unit_ND))
    if centre:
        centre_rows(rows_ND, mean_direction(rows_ND, weight_N))
    centroid_KD = fit(rows_ND, weight_N, count, seed, tries=4)
    return (rows_ND @ centroid_KD.T).argmax(1)


def standing_models(
    arguments: argparse.Namespace, files: models.ModelFiles, rows: list[Rendered], seed: int
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The base model, and a copy warmed up on a random part of the rows as ``score`` does it."""
    for fraction in arguments.warmup:
        model = models.load_model(files, dtype=torch.float32)
        if fraction:
            order = np.random.default_rng(seed).permutation(len(rows))
            part = [rows[i] for i in order[: round(fraction * len(rows))]]
            torch.manual_seed(seed)
            model = warmup._train(model, part, ScoreSettings(seed=seed), "cpu", Silent())
        weights = {name: weight.detach().clone() for name, weight in model.state_dict().items()}

        def fresh(weights: dict[str, torch.Tensor] = weights) -> Any:
            copy = models.load_model(files, dtype=torch.float32)
            copy.load_state_dict(weights)
            return copy

        yield f", warmed up on {fraction:.0%}" if fraction else "", fresh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--model", required=True)
    parser.add_argument("--field", action="append", default=[])
    parser.add_argument("--label", action="append", required=True)
    parser.add_argument("--clusters", nargs="+", type=int, default=[30])
    parser.add_argument("--warmup", nargs="+", type=float, default=[0.0, 0.05])
    parser.add_argument("--only", nargs="+", help="variants whose name contains one of these")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sample", type=int, help="so many rows, drawn at random")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    files = models.find_model(arguments.model)
    renderer = Renderer(models.load_tokenizer(files), max_length=arguments.length)
    fields = tuple((f.partition("=")[0], f.partition("=")[2]) for f in arguments.field)
    with open_dataset([arguments.data], DataOptions(fields=fields)) as data:
        drawn = np.random.default_rng(0).permutation(len(data))[: arguments.sample]
        pairs = [(data[i], renderer(data[i])) for i in sorted(drawn.tolist())]
    pairs = [pair for pair in pairs if pair[1].status in (0, 1)]
    rows = [row for _, row in pairs]
    texts = [" ".join(str(m["content"]) for m in example.messages) for example, _ in pairs]
    truth = {n: np.array([label_of(e, n) for e, _ in pairs]) for n in arguments.label}
    results: dict[tuple[str, int, bool | None], list[dict[str, Any]]] = {}
    record: dict[str, Any] = {
        "data": f"{Path(arguments.data).parent.name}/{Path(arguments.data).name}",
        "model": Path(arguments.model).name,
        "rows": len(rows),
        "classes": {name: len(set(values)) for name, values in truth.items()},
        "seeds": arguments.seeds,
    }

    def note(name: str, count: int, centre: bool | None, found: np.ndarray) -> None:
        scores = {label: measure(values, found) for label, values in truth.items()}
        results.setdefault((name, count, centre), []).append(scores)
        print(json.dumps([name, count, centre, scores]), file=sys.stderr, flush=True)
        record["results"] = [
            {"signature": n, "clusters": k, "centred": c, "by_seed": seeds}
            for (n, k, c), seeds in results.items()
        ]
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")

    wanted = {
        name: build
        for name, build in VARIANTS.items()
        if not arguments.only or any(part in name for part in arguments.only)
    }
    for seed in range(arguments.seeds):
        for count in arguments.clusters:
            note("TF-IDF of the text", count, None, tfidf_clusters(texts, count, seed))
        for warmed, load in standing_models(arguments, files, rows, seed):
            for name, build in wanted.items():
                raw, _ = sign_rows(rows, Signer(build(load(), seed, rows), "cpu", BUDGET))
                unit_ND = meter.unit(torch.from_numpy(raw))
                for count in arguments.clusters:
                    for centre in (True, False):
                        note(name + warmed, count, centre, clusters(unit_ND, count, seed, centre))


if __name__ == "__main__":
    main()
