"""The whole chain on the practice bank, and what came of it: `make demo`.

Generates the bank, trains the base model, runs the five commands, trains a second time on all rows
with the same settings, asks the three models the dev questions, and prints what each way cost and
taught. Every figure is read from an artifact or measured here. A second run does only what is
missing; times of steps that were up to date are those of the run that made them.

    python examples/practice_bank/demo.py --work work/practice_bank
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import table  # noqa: E402

# Where each kind of artifact keeps its header (DESIGN section 4).
HEADERS = {"signatures.zarr": "zarr.json", "clusters.zarr": "zarr.json"}
SMOKE = {"rows": 160, "dev": 32, "steps": 20, "epochs": 1}
FRACTION, RANKS, MICRO_BATCH, MAX_LENGTH = 0.31, 2, 16, 128


@dataclass
class Workshop:
    """Runs commands in one folder and remembers how long each artifact took to make."""

    folder: Path
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = self.folder / "seconds.json"
        if self._log.exists():
            self.seconds = json.loads(self._log.read_text())

    def script(self, name: str, *arguments: object) -> str:
        """Runs a script of this folder; gives its stdout."""
        return self._run([str(HERE / name), *map(str, arguments)], f"python {name}", output=True)

    def command(self, verb: str, *arguments: object, output: str) -> dict[str, Any]:
        """Runs ``cluster-cli verb ... -o output``; gives the header of what stands there then."""
        before = self._key(output)
        started = time.perf_counter()
        shown = [verb, *map(str, arguments), "-o", output]
        self._run(["-m", "cluster_cli", *shown], "cluster-cli")
        took = time.perf_counter() - started
        if output not in self.seconds or before != self._key(output):
            self.seconds[output] = round(took, 2)
            self._log.write_text(json.dumps(self.seconds, indent=1) + "\n")
        return self.header(output)

    def header(self, output: str) -> dict[str, Any]:
        """The header of an artifact: a JSON file of its own, or the first line of a JSONL file."""
        path = self.folder / output
        if output.endswith(".jsonl"):
            with path.open() as lines:
                return json.loads(next(lines))
        header = json.loads((path / _header_file(output)).read_text())
        return header.get("attributes", header)

    def _key(self, output: str) -> str | None:
        try:
            return self.header(output)["key"]
        except FileNotFoundError:
            return None

    def _run(self, arguments: list[str], shown: str, *, output: bool = False) -> str:
        words = arguments[2:] if arguments[0] == "-m" else arguments[1:]
        print(f"$ {' '.join([shown, *words])}", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=_environment(),
            stdout=subprocess.PIPE if output else None,
            text=True,
        )
        if done.returncode:
            raise SystemExit(done.returncode)
        return done.stdout or ""


def _header_file(output: str) -> str:
    if output.startswith("run"):
        return "run.json"
    return HEADERS.get(output, "manifest.json")


def _environment() -> dict[str, str]:
    import os

    # Run from the source tree as well as installed.
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Threads that spin while they wait would fight with whatever else runs on the machine.
    calm = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    return {**calm, **os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def run(work: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The chain; gives all that the tables show."""
    shop = Workshop(work)
    shop.script(
        "generate.py", "--rows", args.rows, "--dev", args.dev, "--seed", args.seed, "-o", "."
    )
    shop.script("base_model.py", "--steps", args.steps, "--seed", args.seed, "-o", "base")
    score = ("train.jsonl", "--model", "base", "--max-length", MAX_LENGTH)
    shop.command("score", *score, output="signatures.zarr")
    clusters = shop.command("cluster", "signatures.zarr", output="clusters.zarr")
    arms = {
        "selected": _arm(shop, args, "selected", "--fraction", FRACTION),
        "full": _arm(shop, args, "full", "--method", "all"),
    }
    models = {"before": "base", "selected": "run-selected/model", "full": "run-full/model"}
    return {
        "clusters": clusters["stats"],
        "agreement": table.agreement(work),
        "shares": table.shares(work),
        "arms": arms,
        "accuracy": {
            name: json.loads(shop.script("evaluate.py", folder, "dev.jsonl"))
            for name, folder in models.items()
        },
        "selection_seconds": {
            name: shop.seconds[name]
            for name in ("signatures.zarr", "clusters.zarr", "selection-selected.jsonl")
        },
    }


def _arm(shop: Workshop, args: argparse.Namespace, name: str, *how: object) -> dict[str, Any]:
    """Selects, allocates and trains one way; both ways differ in what is selected alone."""
    selection, plan = f"selection-{name}.jsonl", f"allocation-{name}"
    chosen = shop.command("select", "clusters.zarr", *how, output=selection)
    shape = ("--ranks", RANKS, "--micro-batch", MICRO_BATCH, "--epochs", args.epochs)
    shop.command("allocate", selection, *shape, output=plan)
    rate = ("--model", "base", "--learning-rate", args.learning_rate)
    trained = shop.command("train", plan, *rate, output=f"run-{name}")
    return {"selection": chosen["stats"], "run": trained["stats"]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the whole chain on the practice bank.")
    parser.add_argument("--work", type=Path, default=Path("work/practice_bank"), metavar="DIR")
    parser.add_argument("--rows", type=int, default=6000, help="training rows (default 6000)")
    parser.add_argument("--dev", type=int, default=480, help="dev rows (default 480)")
    parser.add_argument("--steps", type=int, default=900, help="steps of the base (default 900)")
    parser.add_argument("--epochs", type=int, default=3, help="passes of both (default 3)")
    parser.add_argument("--learning-rate", type=float, default=1.5e-3, metavar="RATE")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="the smallest size, to see it run")
    args = parser.parse_args()
    if args.smoke:
        vars(args).update(SMOKE)
    started = time.perf_counter()
    work = args.work.resolve()
    result = run(work, args)
    (work / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    table.show(result)
    print(f"the whole demo: {time.perf_counter() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
