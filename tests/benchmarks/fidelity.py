"""How faithful is a signature, and what does it cost? ``python tests/benchmarks/fidelity.py --help``

Fidelity: rank correlation (Spearman) of all pairwise cosines with those of the exact gradients, over all
pairs and over pairs within one source; and how many of an example's ten nearest neighbours are found.
"Exact" is a projection of every linear layer to rank 256 without a sketch and with other random numbers
than any signature under test: what it leaves out is far below what is measured.

Cost: seconds for signing the rows, as a fraction of seconds for plain training steps (forward, backward
with weight gradients, AdamW) on the same batches, taken in alternation in the same process.
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
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from formats.data import DataOptions, open_dataset  # noqa: E402
from formats.rendering import Rendered, Renderer  # noqa: E402
from stages import models  # noqa: E402
from stages.score import meter  # noqa: E402
from stages.score.batches import Signer, batches, pad, sign_rows  # noqa: E402
from stages.score.controls import EmbeddingSigner  # noqa: E402
from stages.score.signers import GradientSigner, HeadSigner  # noqa: E402

BUDGET = 2048  # padded tokens in a batch
DEFAULT = "rank 64, D 4096 (default)"
SETTINGS: dict[str, dict[str, Any]] = {
    "rank 8, unsketched": {"rank": 8, "unsketched": True},
    "rank 16, unsketched": {"rank": 16, "unsketched": True},
    "rank 32, unsketched": {"rank": 32, "unsketched": True},
    "rank 32, D 4096": {"rank": 32, "dims": 4096},
    DEFAULT: {"rank": 64, "dims": 4096},
    "rank 128, D 4096": {"rank": 128, "dims": 4096},
    "rank 64, D 1024": {"rank": 64, "dims": 1024},
    "v_proj only, rank 128, D 4096": {"rank": 128, "dims": 4096, "layers": "v_proj|c_attn"},
    "down_proj only, rank 128, D 4096": {"rank": 128, "dims": 4096, "layers": "down_proj|c_proj"},
    "last half of layers, rank 64": {"rank": 64, "dims": 4096, "layers": "last:half"},
    "last 8 layers, rank 64": {"rank": 64, "dims": 4096, "layers": "last:8"},
    "last layer, rank 64": {"rank": 64, "dims": 4096, "layers": "last:1"},
    "head (forward only), rank 64": {"kind": "head", "rank": 64, "dims": 4096},
    "head (forward only), rank 128, D 16384": {"kind": "head", "rank": 128, "dims": 16384},
}

COSTED = (
    DEFAULT,
    "rank 16, unsketched",
    "rank 128, D 4096",
    "last layer, rank 64",
    "head (forward only), rank 64",
)


def load_rows(
    arguments: argparse.Namespace, tokenizer: Any
) -> tuple[list[Rendered], np.ndarray, list[bytes]]:
    """The first usable rows of each source, rendered; which source each is from; and their ids."""
    renderer = Renderer(tokenizer, max_length=arguments.length)
    rows: list[Rendered] = []
    source: list[int] = []
    ids: list[bytes] = []
    for number, path in enumerate(arguments.data):
        with open_dataset([path], DataOptions(limit=arguments.rows * 2)) as dataset:
            rendered = [(renderer(example), example.id) for example in dataset]
        usable = [pair for pair in rendered if pair[0].status in (0, 1)][: arguments.rows]
        rows += [row for row, _ in usable]
        ids += [identity for _, identity in usable]
        source += [number] * len(usable)
    return rows, np.array(source), ids


def matched(
    arguments: argparse.Namespace, path: str, ids: list[bytes], load: Callable[..., Any]
) -> tuple[np.ndarray, np.ndarray]:
    """A proxy's signatures of the rows it can use too, and their places among ``ids``."""
    other = models.find_model(path)
    rows, _, theirs = load_rows(arguments, models.load_tokenizer(other))
    common = [i for i, identity in enumerate(ids) if identity in set(theirs)]
    chosen = [rows[theirs.index(ids[i])] for i in common]
    return sign_alone(build(load(other), SETTINGS[DEFAULT]), chosen), np.array(common)


def build(model: Any, setting: dict[str, Any]) -> Any:
    """A signer for one line of the table."""
    options = {"seed": 0, "dims": setting["rank"] ** 2, **setting}
    kind, unsketched = options.pop("kind", "gradient"), options.pop("unsketched", False)
    if options.get("layers") == "last:half":
        options["layers"] = f"last:{model.config.num_hidden_layers // 2}"
    if kind == "head":
        return HeadSigner(model, **options)
    signer = GradientSigner(model, **options)
    return meter.spread_out(signer) if unsketched else signer


def sign_alone(signer: Any, rows: list[Rendered]) -> np.ndarray:
    """(N, D) float16 unit rows of a signer that needs no backward pass, or has a model of its own."""
    raw, _ = sign_rows(rows, Signer(signer, "cpu", BUDGET))
    return meter.unit(torch.from_numpy(raw))


class TrainingStep:
    """A plain step on padded batches: all logits, all weight gradients, AdamW."""

    def __init__(self, model: Any) -> None:
        self.model = model.requires_grad_(True).train()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)

    def __call__(self, batch: Any) -> None:
        labels = torch.where(batch.supervised, batch.input_ids, -100)
        self.model(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=labels
        ).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def relative_cost(
    load: Callable[[], Any], setting: dict[str, Any], rows: list[Rendered], repeats: int
) -> list[float]:
    """Seconds of signing over seconds of training on the same batch, one ratio per repeat."""
    signer, step = build(load(), setting), TrainingStep(load())
    # The same batches of some 512 tokens for both, one of long rows and one of short ones.
    every = list(batches([len(row.input_ids) for row in rows], 512))
    groups = [every[len(every) // 4], every[3 * len(every) // 4]]
    ratios = []
    for repeat in range(repeats + 1):
        spent = [0.0, 0.0]
        for members in groups:
            batch = pad([rows[i] for i in members], "cpu")
            for which, work in enumerate((signer, step)):
                start = time.perf_counter()
                work(batch)
                spent[which] += time.perf_counter() - start
        if repeat:  # the first round warms caches up
            ratios.append(spent[0] / spent[1])
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="one file per source")
    parser.add_argument("--model", required=True)
    parser.add_argument("--proxy", action="append", default=[], help="another model, as signature")
    parser.add_argument("--rows", type=int, default=60, help="of each source")
    parser.add_argument("--length", type=int, default=160)
    parser.add_argument("--only", help="settings whose name contains this")
    parser.add_argument("--repeats", type=int, default=3, help="of each cost measurement")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    files = models.find_model(arguments.model)

    def load(which: models.ModelFiles = files) -> Any:
        return models.load_model(which, dtype=torch.float32)

    rows, source, ids = load_rows(arguments, models.load_tokenizer(files))
    say(f"{len(rows)} rows, {sum(len(row.input_ids) for row in rows):,} tokens")
    wanted = {
        name: s for name, s in SETTINGS.items() if not arguments.only or arguments.only in name
    }
    model = load()
    hooked = {name: build(model, s) for name, s in wanted.items() if s.get("kind") != "head"}
    signers = [meter.exact_signer(model), *hooked.values()]
    exact, *signed = meter.sign_together(signers, rows, BUDGET)
    exact = meter.cosines(exact)
    signatures = dict(zip(hooked, signed, strict=True))
    for name, setting in wanted.items():
        if setting.get("kind") == "head":
            signatures[name] = sign_alone(build(load(), setting), rows)
    places = {}
    for path in arguments.proxy:
        name = f"proxy {Path(path).name}, rank 64"
        signatures[name], places[name] = matched(arguments, path, ids, load)
    signatures["mean hidden state (topic)"] = sign_alone(EmbeddingSigner(load()), rows)
    del model, hooked, signers
    results = []
    for name, signature in signatures.items():
        line: dict[str, Any] = {"signature": name, "numbers": signature.shape[1]}
        here = places.get(name, np.arange(len(rows)))
        line |= meter.agreement(meter.cosines(signature), exact[np.ix_(here, here)], source[here])
        if arguments.repeats and name in wanted and name in COSTED:
            line["cost"] = relative_cost(load, wanted[name], rows, arguments.repeats)
        results.append(line)
        say(json.dumps(line))
    record = {
        "model": Path(arguments.model).name,
        "sources": [Path(path).parent.name for path in arguments.data],
        "rows": len(rows),
        "length": arguments.length,
        "threads": torch.get_num_threads(),
        "results": results,
    }
    arguments.output.write_text(json.dumps(record, indent=1) + "\n")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
