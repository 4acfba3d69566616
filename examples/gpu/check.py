"""Does it all run on this GPU, how fast, and is the weighted loss right? At most five minutes.

    python examples/gpu/check.py --model path/to/SmolLM2-135M > check.json
    python examples/gpu/check.py --cpu                      # a tiny model, anywhere

Scores, clusters, selects, allocates and trains in bfloat16 with ZeRO 2 on made-up rows, then compares the
weighted loss and its gradient with plain PyTorch, one example at a time. Without --model a tiny model with
random weights is used. Prints a summary as JSON; messages go to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

LIMIT_SECONDS = 300
LENGTH, EPOCHS, FRACTION = 512, 2, 0.5


def main() -> None:
    args = arguments()
    if args.cpu:
        os.environ["DS_ACCELERATOR"] = "cpu"
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(LIMIT_SECONDS)
    began = time.perf_counter()
    from formats.errors import ClusterCliError

    with tempfile.TemporaryDirectory(prefix="cluster-cli-check-") as folder:
        try:
            summary = check(args, Path(folder))
        except ClusterCliError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(error.exit_code) from None
    print(json.dumps({**summary, "seconds": round(time.perf_counter() - began, 1)}, indent=1))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="folder of a model, such as SmolLM2-135M; else a tiny one")
    parser.add_argument("--ranks", type=int, default=1, help="GPUs to train on")
    parser.add_argument("--rows", type=int, help="training rows; 2,000 on a GPU, 48 on the CPU")
    parser.add_argument("--cpu", action="store_true", help="leave the GPU alone, be small")
    args = parser.parse_args()
    args.rows = args.rows or (48 if args.cpu else 2000)
    return args


def out_of_time(*_: Any) -> None:
    print(f"error: not done after {LIMIT_SECONDS} s; give fewer --rows", file=sys.stderr)
    raise SystemExit(1)


def check(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The whole chain, and what was measured."""
    import torch

    from stages.launch import use_cpu
    from stages.train.record import versions

    if use_cpu() and not args.cpu:
        print("error: no GPU here; --cpu checks the rest", file=sys.stderr)
        raise SystemExit(1)
    write_rows(folder / "train.jsonl", args.rows, seed=0)
    write_rows(folder / "held_out.jsonl", max(16, args.rows // 20), seed=1)
    model = args.model or tiny(folder / "model")
    rates = chain(args, folder, model)
    return {
        "device": "cpu" if args.cpu else torch.cuda.get_device_name(),
        "ranks": args.ranks,
        "model": Path(model).name,
        "versions": versions(),
        **rates,
        "exactness": exactness(folder, model),
    }


def write_rows(path: Path, count: int, seed: int) -> None:
    """Counting in steps: rows of many lengths, and eight kinds of lesson, one for each step."""
    chance = random.Random(seed)
    with path.open("w", encoding="utf-8") as stream:
        for _ in range(count):
            first, step, steps = (chance.randrange(*of) for of in ((1000,), (1, 9), (2, 60)))
            said = " ".join(str(first + step * number) for number in range(1, steps))
            question = f"Count on from {first} in steps of {step}, {steps - 1} numbers."
            stream.write(json.dumps({"question": question, "answer": said}) + "\n")


def tiny(folder: Path) -> str:
    """The tests' model with random weights."""
    from tests import tiny

    return str(tiny.save(folder))


def chain(args: argparse.Namespace, folder: Path, model: str) -> dict[str, Any]:
    """The five stages; tokens per second, losses, memory."""
    from stages.allocate import allocate
    from stages.cluster import cluster
    from stages.reporting import Console
    from stages.score import score
    from stages.score.settings import ScoreSettings
    from stages.select import select
    from stages.train import train

    say = Console()
    steps = {name: folder / name for name in ("signatures", "clusters", "allocation", "run")}
    began = time.perf_counter()
    settings = ScoreSettings(max_length=LENGTH)
    rows = [str(folder / "train.jsonl")]
    scored = score(rows, model, steps["signatures"], settings=settings, reporter=say).stats
    seconds = time.perf_counter() - began
    cluster(steps["signatures"], steps["clusters"], clusters=8, reporter=say)
    chosen = folder / "selection.jsonl"
    select(steps["clusters"], chosen, fraction=FRACTION, reporter=say)
    shape = {"micro_batch": 2, "accumulation": 2} if args.cpu else {"micro_batch": 8}
    allocate(chosen, steps["allocation"], ranks=args.ranks, epochs=EPOCHS, reporter=say, **shape)
    trained = train(
        steps["allocation"],
        model,
        steps["run"],
        dtype="bfloat16",
        zero_stage=2,
        learning_rate=1e-3 if args.cpu else 1e-4,
        eval_data=[folder / "held_out.jsonl"],
        reporter=say,
    ).stats
    before, after = (each["eval"]["held_out.jsonl"]["loss"] for each in trained["eval"])
    return {
        "dtype": trained["dtype"],
        "zero_stage": trained["zero_stage"],
        "scoring": {
            "rows": scored["rows"],
            "tokens": scored["tokens"],
            "seconds": round(seconds, 2),
            "tokens_per_second": round(scored["tokens"] / seconds),
        },
        "training": {
            "steps": trained["steps"],
            "tokens": trained["tokens"],
            "seconds": round(trained["train_seconds"], 2),
            "tokens_per_second": round(trained["tokens"] / trained["train_seconds"]),
            "peak_memory_bytes": trained["peak_memory_bytes"],
        },
        "held_out_loss": {"before": before, "after": after},
    }


def exactness(folder: Path, model: str) -> dict[str, float]:
    """The plan's first step: our padded, weighted micro-batches against one example at a time.

    Both in float32. ``loss`` and ``gradient`` are relative differences; ``trained_loss`` is that of the
    first step of the bfloat16 run, as its ``metrics.jsonl`` says.
    """
    import torch

    from formats.allocation import Allocation
    from formats.data import open_reference
    from formats.rendering import Renderer
    from formats.runs import read_metrics
    from stages import models
    from stages.train.batches import collate
    from stages.train.loss import weighted_loss

    device = models.compute_device()
    files = models.find_model(model)
    network = models.load_model(files, dtype=torch.float32).to(device)
    plan = Allocation.open(folder / "allocation")
    render = Renderer(models.load_tokenizer(files), max_length=LENGTH)
    batches = [b for rank in range(plan.ranks) for b in plan.rank(rank) if b.step == 0]
    places = plan.ranks * plan.accumulation * plan.micro_batch

    got, expected, gradients = 0.0, 0.0, []
    with open_reference(plan.header.dataset, folder) as dataset:
        rendered = {row: render(dataset[row]) for batch in batches for row in batch.rows}
    for batch in batches:
        padded = collate(batch, [rendered[row] for row in batch.rows])
        loss, _ = weighted_loss(network, padded, places, device)
        loss.backward()
        got += float(loss.detach())
    gradients.append(taken(network))
    for batch in batches:
        for row, weight in zip(batch.rows, batch.weights, strict=True):
            loss = weight * plain_loss(network, rendered[row], device) / places
            loss.backward()
            expected += float(loss.detach())
    gradients.append(taken(network))
    first = next(iter(read_metrics(folder / "run")))["loss"]
    ours, reference = gradients
    return {
        "loss": abs(got - expected) / expected,
        "gradient": float((ours - reference).norm() / reference.norm()),
        "trained_loss": abs(first - expected) / expected,
    }


def plain_loss(network: Any, rendered: Any, device: str) -> Any:
    """The mean loss of one example's response tokens, without padding."""
    import torch

    ids = torch.tensor(rendered.input_ids, dtype=torch.int64, device=device)
    learned = torch.tensor(rendered.supervised[1:], device=device)
    log_probabilities = network(input_ids=ids[None]).logits[0, :-1].log_softmax(-1)[learned]
    return -log_probabilities.gather(1, ids[1:][learned][:, None]).mean()


def taken(network: Any) -> Any:
    """The whole gradient as one vector; the network's is cleared."""
    import torch

    gradient = torch.cat([w.grad.flatten() for w in network.parameters() if w.grad is not None])
    network.zero_grad()
    return gradient


if __name__ == "__main__":
    main()
