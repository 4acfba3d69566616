"""How fast are signatures, beside other ways to get them? ``python tests/benchmarks/speed.py --help``

Same model, same rows, one thread, processor time, in one run, alternating:

* ours: the default gradient signature, and the forward-only head;
* one example at a time: LoRA on the attention projections, a backward pass per example, and a dense
  Rademacher projection of all LoRA gradients to 8,192 numbers, in portions of 16 examples (the recipe of
  LESS, Xia et al. 2024, arXiv:2402.04333), at LoRA rank 128 as published and at rank 8;
* bergson, at its rank 16 for every module, when ``--bergson`` names an interpreter that has it.

Fidelity is measured on the same rows, against exact gradients (see fidelity.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from formats.rendering import Rendered  # noqa: E402
from stages import models  # noqa: E402
from stages.score import meter  # noqa: E402
from stages.score.batches import Signer, pad, sign_rows  # noqa: E402
from stages.score.signers import GradientSigner, HeadSigner  # noqa: E402
from tests.benchmarks.fidelity import load_rows  # noqa: E402

BUDGET = 2048  # padded tokens in a batch, bergson's default too
DENSE, PORTION = 8192, 16
SLICE = 4096  # LoRA weights projected at once: the whole matrix would not fit in memory


def timed(sign: Any, rows: Sequence[Rendered]) -> tuple[np.ndarray, float]:
    """(N, D) unit rows, and processor seconds."""
    start = time.process_time()
    raw_ND = sign(rows)
    spent = time.process_time() - start
    return meter.unit(torch.from_numpy(np.asarray(raw_ND))), spent


class PlainLora:
    """The recipe of LESS, written plainly: no batching, no hooks, a dense projection."""

    def __init__(self, model: Any, rank: int) -> None:
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(0)
        names = ["q_proj", "k_proj", "v_proj", "o_proj"]
        self.model = get_peft_model(
            model, LoraConfig(r=rank, target_modules=names, task_type="CAUSAL_LM")
        )
        self.weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        with torch.no_grad():  # zeros would leave half of the gradients zero
            for weight in self.weights:
                weight.normal_(std=0.02)

    def __call__(self, rows: Sequence[Rendered]) -> np.ndarray:
        """(N, 8192) projected LoRA gradients."""
        parts = []
        for start in range(0, len(rows), PORTION):
            gradient_BP = torch.stack([self.gradient(row) for row in rows[start : start + PORTION]])
            parts.append(self.project(gradient_BP))
        return torch.cat(parts).numpy()

    def gradient(self, row: Rendered) -> torch.Tensor:
        """All LoRA gradients of one example."""
        batch = pad([row], "cpu")
        labels = torch.where(batch.supervised, batch.input_ids, -100)
        self.model(input_ids=batch.input_ids, labels=labels).loss.backward()
        flat = torch.cat([w.grad.flatten() for w in self.weights if w.grad is not None])
        self.model.zero_grad(set_to_none=True)
        return flat

    def project(self, gradient_BP: torch.Tensor) -> torch.Tensor:
        """Signs are drawn anew for every portion, as the recipe's projector does."""
        generator = torch.Generator().manual_seed(0)
        total = torch.zeros(len(gradient_BP), DENSE)
        for start in range(0, gradient_BP.shape[1], SLICE):
            part = gradient_BP[:, start : start + SLICE]
            signs = torch.randint(
                0, 2, (part.shape[1], DENSE), generator=generator, dtype=torch.int8
            )
            total += part @ (signs.float() * 2 - 1)
        return total


def bergson(interpreter: str, folder: str, rows: Sequence[Rendered]) -> tuple[np.ndarray, float]:
    """(N, 53,760) unit rows and processor seconds of bergson's collector."""
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "rows.json"
        data.write_text(
            json.dumps(
                [
                    {
                        "input_ids": row.input_ids.tolist(),
                        "labels": np.where(row.supervised, row.input_ids, -100).tolist(),
                        "length": len(row.input_ids),
                    }
                    for row in rows
                ]
            )
        )
        index = Path(place) / "index"
        worker = Path(__file__).with_name("bergson_worker.py")
        done = subprocess.run(
            [interpreter, worker, folder, data, index],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )
        spent = json.loads(done.stdout.strip().splitlines()[-1])["seconds"]
        stored = index.with_name("index.part")
        shape = json.loads((stored / "info.json").read_text())
        width = sum(shape["grad_sizes"].values())
        dtype = np.dtype(shape["base_dtype"])
        raw = np.fromfile(stored / "gradients.bin", dtype).reshape(len(rows), width)
    return meter.unit(torch.from_numpy(raw.astype(np.float32))), spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="one file per source")
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, default=16, help="of each source")
    parser.add_argument("--length", type=int, default=160)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--bergson", help="the Python interpreter of an environment with bergson")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    files = models.find_model(arguments.model)
    rows, source, _ = load_rows(arguments, models.load_tokenizer(files))
    tokens = sum(len(row.input_ids) for row in rows)

    def load() -> Any:
        return models.load_model(files, dtype=torch.float32)

    def ours(signer: Any) -> Any:
        return lambda given: sign_rows(given, Signer(signer, "cpu", BUDGET))[0]

    arms: dict[str, Any] = {
        "cluster-cli, gradient": ours(GradientSigner(load(), rank=64, dims=4096, seed=0)),
        "cluster-cli, head": ours(HeadSigner(load(), rank=64, dims=4096, seed=0)),
        "one at a time, LoRA 128, dense projection": PlainLora(load(), 128),
        "one at a time, LoRA 8, dense projection": PlainLora(load(), 8),
    }
    spent: dict[str, list[float]] = {}
    found: dict[str, np.ndarray] = {}
    for sign in arms.values():  # once before the clock runs, but no dense projection
        sign.gradient(rows[0]) if isinstance(sign, PlainLora) else sign(rows[:2])
    for _ in range(arguments.repeats):
        for name, sign in arms.items():
            found[name], seconds = timed(sign, rows)
            spent.setdefault(name, []).append(seconds)
        if arguments.bergson:
            name = "bergson, rank 16"
            found[name], seconds = bergson(arguments.bergson, arguments.model, rows)
            spent.setdefault(name, []).append(seconds)
        print({name: [tokens / s for s in times] for name, times in spent.items()}, file=sys.stderr)
    exact = meter.cosines(meter.sign_together([meter.exact_signer(load())], rows, BUDGET)[0])
    results = []
    for name, signature in found.items():
        ratios = [
            seconds / reference
            for seconds, reference in zip(spent[name], spent["cluster-cli, gradient"], strict=True)
        ]
        results.append(
            {
                "signature": name,
                "numbers": signature.shape[1],
                "tokens_per_second": [tokens / seconds for seconds in spent[name]],
                "slower_than_ours": ratios,
                **meter.agreement(meter.cosines(signature), exact, source),
            }
        )
        print(json.dumps(results[-1]), file=sys.stderr)
    record = {
        "model": Path(arguments.model).name,
        "sources": [Path(path).parent.name for path in arguments.data],
        "rows": len(rows),
        "tokens": tokens,
        "length": arguments.length,
        "results": results,
    }
    arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
