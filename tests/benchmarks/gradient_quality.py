"""Which plan follows the full gradient best? ``python tests/benchmarks/gradient_quality.py --help``

For a scored, clustered and selected dataset, and each strategy at equal batch size:

* variance of the step gradient, that is its mean squared distance to the whole selection's weighted
  gradient over the full steps, random = 1; once in signature space (norm times signature), once with
  exact gradients: all parameters of the model, float32, one example at a time.
* what two ranks have in common in a step: clusters, direction, and how evenly they are loaded;
* steps until a loss is reached: plain training with the plan's batches and the project's loss, one
  process; the loss to reach is the one at which ``random`` ends with its worst seed.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from formats.allocation import MicroBatch  # noqa: E402
from formats.data import open_reference  # noqa: E402
from formats.rendering import Renderer  # noqa: E402
from formats.selection import Selection, hex_ids, read_selection  # noqa: E402
from stages import models  # noqa: E402
from stages.allocate.deal import Deal  # noqa: E402
from stages.allocate.report import figures, in_signature_space  # noqa: E402
from stages.allocate.shape import Shape  # noqa: E402
from stages.allocate.strategies import STRATEGIES, plan  # noqa: E402
from stages.allocate.vectors import load, load_norms  # noqa: E402
from stages.train.batches import collate  # noqa: E402
from stages.train.loss import weighted_loss  # noqa: E402

BASELINE = "random"
MICRO_BATCH = 4
BETWEEN = ("shared_cluster", "padded_ratio_mean", "padding", "rank_cosine", "batch_variance")
Examples = list[Any]  # ``Rendered`` of each selected example
Planner = Callable[[str, int, int, int], Iterator[Deal]]  # strategy, batch, seed, epochs


def planner(selection: Selection, vectors: np.ndarray, ranks: int, accumulation: int) -> Planner:
    """Plans of ``batch`` examples a step, over the given ranks."""

    def make(strategy: str, batch: int, seed: int, epochs: int) -> Iterator[Deal]:
        micro = batch // ranks // accumulation
        if micro * ranks * accumulation != batch:
            raise SystemExit(
                f"a batch of {batch} is not {ranks} ranks x {accumulation} x whole rows"
            )
        shape = Shape(len(selection), ranks, micro, accumulation)
        how: dict[str, Any] = {"epochs": epochs, "seed": seed, "rotate": False}
        return plan(selection, shape, strategy, vectors=vectors, **how)

    return make


def render(selection: Selection, tokenizer: Any) -> Examples:
    """The selected examples as they were rendered for scoring."""
    how = selection.header.extra["rendering"]
    renderer = Renderer(tokenizer, max_length=how["max_length"], chat_template=how["chat_template"])
    with open_reference(selection.header.dataset, selection.path.parent) as dataset:
        return [renderer(dataset[row]) for row in selection.row.tolist()]


def loss_of(
    model: Any, selection: Selection, examples: Examples, chosen: list[int], share: float
) -> torch.Tensor:
    """(1/share) sum_i w_i l_i over the chosen examples, as ``train`` computes it."""
    batch = MicroBatch(
        0,
        0,
        0,
        selection.row[chosen].tolist(),
        hex_ids(selection.id[chosen]),
        selection.weight[chosen].tolist(),
        selection.cluster[chosen].tolist(),
        selection.tokens[chosen].tolist(),
    )
    return weighted_loss(model, collate(batch, [examples[i] for i in chosen]), share, "cpu")[0]


def exact_products(
    model: Any, selection: Selection, examples: Examples, memory: float
) -> np.ndarray:
    """(M, M) float64 inner products of the examples' weighted gradients of all parameters."""
    weights = [p.requires_grad_(True) for p in model.parameters()]
    size = sum(weight.numel() for weight in weights)
    needed = len(examples) * size * 4 / 2**30
    if needed > memory:
        raise SystemExit(
            f"{len(examples)} gradients of {size:,} numbers take {needed:.1f} GiB, more than "
            f"--memory {memory}; select fewer rows, take a smaller model, or use --no-exact"
        )
    gradient_MP = torch.empty(len(examples), size)
    for index in range(len(examples)):
        loss = loss_of(model, selection, examples, [index], 1.0)
        found = torch.autograd.grad(loss, weights, allow_unused=True)
        flat = [
            torch.zeros(weight.numel()) if each is None else each.reshape(-1)
            for weight, each in zip(weights, found, strict=True)
        ]
        torch.cat(flat, out=gradient_MP[index])
    return products(gradient_MP.numpy())


def products(vector_MD: np.ndarray) -> np.ndarray:
    """(M, M) float64 inner products, added up in float64 over slices of the long side."""
    total = np.zeros((len(vector_MD), len(vector_MD)))
    for start in range(0, vector_MD.shape[1], 16_384):
        part = vector_MD[:, start : start + 16_384]
        total += part @ part.T
    return total


def step_variance(deal: Deal, product_MM: np.ndarray) -> float:
    """Mean over full steps of |mean of the batch - mean of all|^2, from inner products alone."""
    step, _ = deal.step_rank()
    count = len(product_MM)
    mean_M = product_MM.mean(axis=1)
    square = product_MM.mean()
    found = []
    for number in np.flatnonzero(deal.full()).tolist():
        members = deal.example[step == number]
        among = product_MM[np.ix_(members, members)].mean()
        found.append(among - 2 * mean_M[members].mean() + square)
    if not found:
        raise SystemExit(f"{count} rows fill no batch of {deal.batch}")
    return float(np.mean(found))


def variances(
    arguments: argparse.Namespace, make: Planner, selection: Selection, product_MM: np.ndarray
) -> list[dict[str, Any]]:
    """One line per batch size and strategy, relative to the mean of ``random``."""
    lines = []
    for batch in arguments.batches:
        found = {}
        for name in STRATEGIES:
            plans = [next(make(name, batch, seed, 1)) for seed in range(arguments.seeds)]
            found[name] = [step_variance(deal, product_MM) for deal in plans]
            told = figures(plans[0], selection.cluster, selection.tokens)
            lines.append({"batch": batch, "strategy": name, "plan": told})
        base = float(np.mean(found[BASELINE]))
        for line in lines[-len(STRATEGIES) :]:
            relative = [each / base for each in found[line["strategy"]]]
            line |= {"variance": float(np.mean(relative)), "by_seed": relative}
    return lines


def between_ranks(
    arguments: argparse.Namespace, selection: Selection, vectors: np.ndarray
) -> list[dict[str, Any]]:
    """Figures of ``stages.allocate.report`` for plans of four rows a micro-batch, by ranks and strategy."""
    lines = []
    for ranks in arguments.between:
        make = planner(selection, vectors, ranks, arguments.accumulation)
        for name in STRATEGIES:
            batch = ranks * arguments.accumulation * MICRO_BATCH
            deals = [next(make(name, batch, seed, 1)) for seed in range(arguments.seeds)]
            told = [
                figures(deal, selection.cluster, selection.tokens)
                | in_signature_space(deal, vectors, selection.weight)
                for deal in deals
            ]
            by_seed = {key: [each[key] for each in told] for key in BETWEEN}
            lines.append({"ranks": ranks, "strategy": name, **by_seed})
    return lines


def held_out(
    model: Any, selection: Selection, examples: Examples, at_once: int, rows: int
) -> float:
    """Weighted loss over (at most ``rows`` of) the selection."""
    order = np.argsort(selection.tokens, kind="stable")
    if len(order) > rows:
        order = order[np.linspace(0, len(order) - 1, rows).astype(int)]
    with torch.no_grad():
        parts = [
            loss_of(model, selection, examples, order[i : i + at_once].tolist(), 1.0).item()
            for i in range(0, len(order), at_once)
        ]
    return sum(parts) / float(selection.weight[order].sum())


def train(
    arguments: argparse.Namespace,
    model: Any,
    selection: Selection,
    examples: Examples,
    deals: Iterator[Deal],
) -> list[tuple[int, float]]:
    """(steps taken, loss of the selection) every so many steps of AdamW."""
    model = copy.deepcopy(model).requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate, weight_decay=0.0)

    def measured() -> float:
        return held_out(model, selection, examples, 32, arguments.eval_rows)

    curve, taken = [(0, measured())], 0
    for deal in deals:
        rows = deal.rows.reshape(len(deal.rows), -1)
        ends = np.cumsum(rows).reshape(rows.shape)
        for sizes, after in zip(rows.tolist(), ends.tolist(), strict=True):
            for size, end in zip(sizes, after, strict=True):
                if size:
                    members = deal.example[end - size : end].tolist()
                    loss_of(model, selection, examples, members, deal.batch).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            taken += 1
            if taken % arguments.every == 0:
                curve.append((taken, measured()))
    return curve if curve[-1][0] == taken else [*curve, (taken, measured())]


def steps_to(curve: list[tuple[int, float]], target: float) -> float | None:
    """Steps until the loss is first as low as the target, interpolated; None if it never is."""
    for (before, high), (after, low) in pairwise(curve):
        if low <= target:
            return before + (after - before) * max(0.0, high - target) / max(high - low, 1e-12)
    return None


def race(
    arguments: argparse.Namespace,
    make: Planner,
    model: Any,
    selection: Selection,
    examples: Examples,
) -> dict[str, Any]:
    """Steps of each strategy until ``random``'s last loss."""
    batch = arguments.train_batch or arguments.batches[0]
    curves: dict[str, list[list[tuple[int, float]]]] = {}
    for name in (BASELINE, *(name for name in STRATEGIES if name != BASELINE)):
        for seed in range(arguments.train_seeds):
            deals = make(name, batch, seed, arguments.epochs)
            curve = train(arguments, model, selection, examples, deals)
            curves.setdefault(name, []).append(curve)
            say(f"{name}, seed {seed}: loss {curve[0][1]:.4f} to {curve[-1][1]:.4f}")
    target = arguments.target or max(curve[-1][1] for curve in curves[BASELINE])
    results = []
    for name, of in curves.items():
        needed = [steps_to(curve, target) for curve in of]
        results.append({"strategy": name, "steps": needed, "curves": of})
    return {
        "batch": batch,
        "epochs": arguments.epochs,
        "learning_rate": arguments.learning_rate,
        "target": target,
        "results": results,
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("selection", type=Path)
    parser.add_argument("--model", required=True, help="for exact gradients and training")
    parser.add_argument("--signatures", type=Path, help="if they were moved")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--between", type=int, nargs="+", default=[4, 8], help="ranks to compare")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--seeds", type=int, default=5, help="plans of each strategy")
    parser.add_argument("--no-exact", action="store_true", help="signature space only")
    parser.add_argument("--memory", type=float, default=4.0, help="GiB of exact gradients, at most")
    parser.add_argument("--no-train", action="store_true", help="variances only")
    parser.add_argument("--train-seeds", type=int, default=3)
    parser.add_argument("--train-batch", type=int, help="the first of --batches unless given")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--every", type=int, default=5, help="steps between two measured losses")
    parser.add_argument("--eval-rows", type=int, default=256)
    parser.add_argument("--target", type=float, help="loss to reach")
    parser.add_argument("-o", "--output", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    selection = read_selection(arguments.selection)
    files = models.find_model(arguments.model)
    vectors = load(selection, arguments.signatures)
    make = planner(selection, vectors, arguments.ranks, arguments.accumulation)
    long_MD = vectors * load_norms(selection, arguments.signatures)[:, None]
    weighted_MD = (long_MD * selection.weight[:, None]).astype(np.float32)
    record: dict[str, Any] = {
        "data": [Path(each["path"]).parent.name for each in selection.header.dataset["sources"]],
        "model": Path(arguments.model).name,
        "rows": len(selection),
        "clusters": len(np.unique(selection.cluster)),
        "ranks": arguments.ranks,
        "accumulation": arguments.accumulation,
        "between_ranks": between_ranks(arguments, selection, vectors),
        "signatures": variances(arguments, make, selection, products(weighted_MD)),
    }
    tell(record["signatures"], "signatures")
    if not (arguments.no_exact and arguments.no_train):
        examples = render(selection, models.load_tokenizer(files))
        model = models.load_model(files, dtype=torch.float32)
    if not arguments.no_exact:
        exact_MM = exact_products(model, selection, examples, arguments.memory)
        record["exact"] = variances(arguments, make, selection, exact_MM)
        tell(record["exact"], "exact gradients")
    if not arguments.no_train:
        record["training"] = race(arguments, make, model, selection, examples)
        for line in record["training"]["results"]:
            say(f"{line['strategy']}: steps to {record['training']['target']:.4f}: {line['steps']}")
    arguments.output.write_text(json.dumps(record, indent=1) + "\n")


def tell(lines: list[dict[str, Any]], space: str) -> None:
    for line in lines:
        say(f"{space}, batch {line['batch']}, {line['strategy']}: {line['variance']:.3f} of random")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
