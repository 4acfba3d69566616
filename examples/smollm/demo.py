"""The five commands with SmolLM2-135M on your own file: `make demo-smollm DATA=file.jsonl`.

Scores, clusters, selects, allocates and trains, then prints the answer loss before and after on
rows that were held out: those of --dev, or the ones that follow the training rows in DATA.

    python examples/smollm/demo.py file.jsonl --limit 400
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

import prepare  # noqa: E402

if TYPE_CHECKING:
    from formats.rendering import Rendered

HELD_OUT, BATCH = 100, 8


def command(*arguments: object) -> float:
    """Runs ``cluster-cli``; gives its wall-clock seconds, ends the demo if it fails."""
    words = [str(argument) for argument in arguments]
    print(f"$ cluster-cli {' '.join(words)}", file=sys.stderr, flush=True)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "cluster_cli", *words], env=environment)
    if done.returncode:
        raise SystemExit(done.returncode)
    return time.perf_counter() - started


def chain(args: argparse.Namespace, limit: int) -> dict[str, float]:
    """Runs the five commands in ``args.work``; seconds by command."""
    work, model, length = args.work, args.work / "smollm2", args.max_length
    data = [*args.data, *(f"--field={field}" for field in args.field)]
    steps = [
        ("score", *data, "--limit", limit, "--max-length", length, "-m", model, "signatures.zarr"),
        ("cluster", work / "signatures.zarr", "clusters.zarr"),
        ("select", work / "clusters.zarr", "--fraction", args.fraction, "selection.jsonl"),
        ("allocate", work / "selection.jsonl", "--ranks", args.ranks, "--micro-batch", 2,
         "--accumulation", 4, "--epochs", args.epochs, "allocation"),
        ("train", work / "allocation", "-m", model, "--learning-rate", args.learning_rate, "run"),
    ]  # fmt: skip
    return {verb: command(verb, *rest, "-o", work / output) for verb, *rest, output in steps}


def held_out(args: argparse.Namespace) -> tuple[int, list[Rendered]]:
    """How many rows to train on, and the held-out rows as tokens, none of them a training row."""
    from transformers import AutoTokenizer

    from formats.data import DataOptions, open_dataset
    from formats.rendering import OK, TRUNCATED, Renderer

    fields = tuple(tuple(field.split("=", 1)) for field in args.field)
    tokenizer = AutoTokenizer.from_pretrained(args.work / "smollm2")
    renderer = Renderer(tokenizer, max_length=args.max_length)
    extra = 0 if args.dev else HELD_OUT
    with open_dataset(args.data, DataOptions(fields=fields, limit=args.limit + extra)) as rows:
        # A short file gives up a fifth of its rows.
        kept = min(extra, max(len(rows) - args.limit, len(rows) // 5))
        limit = min(args.limit, len(rows) - kept)
        trained = {rows[i].id for i in range(limit)}
        unseen = [rows[i] for i in range(limit, len(rows))]
    if args.dev:
        with open_dataset([args.dev], DataOptions(fields=fields, limit=HELD_OUT)) as rows:
            unseen = list(rows)
    rendered = [renderer(example) for example in unseen if example.id not in trained]
    usable = [item for item in rendered if item.status in (OK, TRUNCATED)]
    if not usable:
        raise SystemExit("error: no usable held-out row; give other rows with --dev FILE")
    return limit, usable


def answer_loss(model_dir: Path, rows: list[Rendered]) -> float:
    """Mean over rows of the mean loss of a row's response tokens, in nats."""
    import torch
    from torch.nn.functional import cross_entropy
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        model_dir, dtype=torch.float32, use_safetensors=True
    ).eval()
    total = 0.0
    ordered = sorted(rows, key=lambda row: len(row.input_ids))
    for at in range(0, len(ordered), BATCH):
        ids_BT, targets_BT = _batch(ordered[at : at + BATCH])
        with torch.inference_mode():
            logits_BTV = model(input_ids=ids_BT).logits[:, :-1]
        loss_BT = cross_entropy(logits_BTV.transpose(1, 2), targets_BT, reduction="none")
        total += float((loss_BT.sum(1) / (targets_BT != -100).sum(1)).sum())
    return total / len(rows)


def _batch(rows: list[Rendered]) -> tuple[Any, Any]:
    """Token ids (B, T) and next-token targets (B, T - 1), -100 where nothing is learned.

    Padding stands to the right of a causal model, which therefore needs no mask.
    """
    import torch

    ids_BT = torch.zeros(len(rows), max(len(row.input_ids) for row in rows), dtype=torch.long)
    targets_BT = torch.full_like(ids_BT, -100)
    for i, row in enumerate(rows):
        ids = torch.from_numpy(row.input_ids).long()
        ids_BT[i, : len(ids)] = ids
        learned = torch.from_numpy(row.supervised)
        targets_BT[i, : len(ids)][learned] = ids[learned]
    return ids_BT, targets_BT[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser(description="The five commands with SmolLM2-135M.")
    parser.add_argument("data", nargs="+", metavar="DATA", help="files as `score` takes them")
    parser.add_argument("--dev", metavar="FILE", help="held-out rows  [default: the end of DATA]")
    parser.add_argument("--field", action="append", default=[], metavar="ROLE=COLUMN")
    parser.add_argument("--limit", type=int, default=400, help="training rows (default 400)")
    parser.add_argument("--work", type=Path, default=Path("work/smollm"), metavar="DIR")
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--fraction", type=float, default=0.31)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    prepare.prepare(args.work / "smollm2")
    limit, rows = held_out(args)
    before = answer_loss(args.work / "smollm2", rows)
    for verb, seconds in chain(args, limit).items():
        print(f"{verb:>9}: {seconds:6.1f} s", file=sys.stderr)
    after = answer_loss(args.work / "run" / "model", rows)
    print(f"answer loss on {len(rows)} held-out rows: {before:.4f} before, {after:.4f} after")


if __name__ == "__main__":
    main()
