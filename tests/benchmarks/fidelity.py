"""How faithful is a signature, and what does it cost? ``python tests/benchmarks/fidelity.py --help``

Fidelity: rank correlation (Spearman) of all pairwise cosines with those of the exact gradients, over all
pairs and over pairs within one source; and how many of an example's ten nearest neighbours are found.
"Exact" is a projection of every linear layer to rank 256 without a sketch and with other random numbers
than any signature under test: what it leaves out is far below what is measured.

Cost: time for signing the rows, as a fraction of the time for plain training steps of the full model
(forward, backward with weight gradients, AdamW) on the same rows, taken in alternation in the same
process. It is processor time with one thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from formats.data import DataOptions, open_dataset  # noqa: E402
from formats.rendering import Rendered, Renderer  # noqa: E402
from stages import models  # noqa: E402
from stages.batching import batches  # noqa: E402
from stages.score import meter  # noqa: E402
from stages.score.batches import Signer, pad, sign_rows  # noqa: E402
from stages.score.controls import EmbeddingSigner  # noqa: E402
from stages.score.signers import GradientSigner, HeadSigner  # noqa: E402
from tests.benchmarks import trials  # noqa: E402

BUDGET = 2048  # padded tokens in a batch
KINDS = {
    "gradient": GradientSigner,
    "head": HeadSigner,
    "straight-through": trials.StraightThroughSigner,
}


@dataclass(frozen=True)
class Setting:
    """One line of the table.

    Attributes:
        response: only so many response tokens are read.
        sample: only this part of the response tokens sends a gradient.
        depth: only so many layers of the model.
        proxy: another model, with its own tokenizer.
        costed: its time is measured too.
    """

    name: str
    rank: int = 64
    dims: int = 4096
    layers: str = "all"
    kind: str = "gradient"
    unsketched: bool = False
    response: int | None = None
    sample: float | None = None
    dtype: torch.dtype = torch.float32
    depth: int | None = None
    proxy: str | None = None
    costed: bool = False

    def plain(self) -> bool:
        """Can share a backward pass with the exact gradients."""
        others = (self.response, self.sample, self.depth, self.proxy)
        same = all(other is None for other in others)
        return same and self.kind == "gradient" and self.dtype == torch.float32


SETTINGS = (
    Setting("rank 8, unsketched", rank=8, unsketched=True),
    Setting("rank 16, unsketched", rank=16, unsketched=True, costed=True),
    Setting("rank 32, unsketched", rank=32, unsketched=True),
    Setting("rank 32, D 4096", rank=32, costed=True),
    Setting("rank 64, D 4096 (default)", costed=True),
    Setting("rank 128, D 4096", rank=128, costed=True),
    Setting("rank 64, D 1024", dims=1024),
    Setting("rank 128, D 1024", rank=128, dims=1024),
    Setting("rank 64, D 16384", dims=16384),
    Setting("v_proj only, rank 128", rank=128, layers="v_proj|c_attn", costed=True),
    Setting("v_proj and down_proj only, rank 64", layers="v_proj|down_proj", costed=True),
    Setting("down_proj only, rank 128", rank=128, layers="down_proj|c_proj"),
    Setting("last 15 layers", layers="last:15", costed=True),
    Setting("last 8 layers", layers="last:8"),
    Setting("last layer", layers="last:1", costed=True),
    Setting("first 16 response tokens", response=16, costed=True),
    Setting("first 64 response tokens", response=64, costed=True),
    Setting("a random quarter of the response tokens", sample=0.25, costed=True),
    Setting("bfloat16", dtype=torch.bfloat16, costed=True),
    Setting("head (forward only), rank 64", kind="head", costed=True),
    Setting("head (forward only), rank 128, D 16384", kind="head", rank=128, dims=16384),
    Setting(
        "head gradient straight to every block's outputs", kind="straight-through", costed=True
    ),
    Setting("proxy: the model's first 8 layers", depth=8, costed=True),
)


@dataclass
class Workbench:
    """The model and rows under test.

    Attributes:
        rows: N usable rendered examples.
        source: (N,) which file each is from.
        ids: their ids.
    """

    arguments: argparse.Namespace
    files: models.ModelFiles
    rows: list[Rendered]
    source: np.ndarray
    ids: list[bytes]

    @classmethod
    def open(cls, arguments: argparse.Namespace) -> Workbench:
        """Reads the first usable rows of every file."""
        files = models.find_model(arguments.model)
        rows, source, ids = load_rows(arguments, models.load_tokenizer(files))
        return cls(arguments, files, rows, source, ids)

    def load(self, setting: Setting | None = None) -> Any:
        """The model a setting signs with."""
        files = models.find_model(setting.proxy) if setting and setting.proxy else self.files
        model = models.load_model(files, dtype=setting.dtype if setting else torch.float32)
        return trials.shallow(model, setting.depth) if setting and setting.depth else model

    def view(self, setting: Setting) -> tuple[list[Rendered], np.ndarray]:
        """The rows as a setting reads them, and their places among all rows."""
        places = np.arange(len(self.rows))
        if setting.proxy:
            tokenizer = models.load_tokenizer(models.find_model(setting.proxy))
            rows, _, theirs = load_rows(self.arguments, tokenizer)
            at = {identity: i for i, identity in enumerate(theirs)}
            places = np.array([i for i, identity in enumerate(self.ids) if identity in at])
            return [rows[at[self.ids[i]]] for i in places], places
        rows = self.rows
        if setting.response:
            rows = [trials.cut_response(row, setting.response) for row in rows]
        if setting.sample:
            rows = [trials.sample_response(r, setting.sample, i) for i, r in enumerate(rows)]
        return rows, places


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


def build(model: Any, setting: Setting) -> Any:
    """The signer of one line."""
    shape = {"rank": setting.rank, "dims": setting.dims, "seed": 0}
    if setting.kind != "gradient":
        return KINDS[setting.kind](model, **shape)
    signer = GradientSigner(model, **shape, layers=setting.layers)
    return meter.spread_out(signer) if setting.unsketched else signer


def sign_alone(signer: Any, rows: Sequence[Rendered]) -> np.ndarray:
    """(N, D) float16 unit rows of a signer that has a model of its own."""
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


def relative_cost(bench: Workbench, setting: Setting, repeats: int) -> list[float]:
    """Time of signing over time of training on the same rows, one ratio per repeat."""
    rows, places = bench.view(setting)
    signer, step = build(bench.load(setting), setting), TrainingStep(bench.load())
    trained = [bench.rows[i] for i in places]
    # Two batches of some 512 tokens, one of long rows and one of short ones.
    every = list(batches([len(row.input_ids) for row in trained], 512))
    groups = [every[len(every) // 4], every[3 * len(every) // 4]]
    ratios = []
    for repeat in range(repeats + 1):
        spent = [0.0, 0.0]
        for members in groups:
            for which, (work, whose) in enumerate(((signer, rows), (step, trained))):
                batch = pad([whose[i] for i in members], "cpu")
                start = time.process_time()
                work(batch)
                spent[which] += time.process_time() - start
        if repeat:  # the first round warms caches up
            ratios.append(spent[0] / spent[1])
    return ratios


def text_cosines(bench: Workbench) -> np.ndarray:
    """(N, N) cosines of TF-IDF rows of prompt and response."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    tokenizer = models.load_tokenizer(bench.files)
    texts = [tokenizer.decode(row.input_ids, skip_special_tokens=True) for row in bench.rows]
    rows = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
    return (rows @ rows.T).toarray().astype(np.float32)


def measure(bench: Workbench, settings: Sequence[Setting], save: Any) -> None:
    """Every line of the table, saved as soon as it is known."""
    model = bench.load()
    plain = [setting for setting in settings if setting.plain()]
    signers = [meter.exact_signer(model), *(build(model, setting) for setting in plain)]
    wide, *signed = meter.sign_together(signers, bench.rows, BUDGET)
    exact = meter.cosines(wide)
    signatures = dict(zip((setting.name for setting in plain), signed, strict=True))
    del model, signers, wide, signed

    def line(name: str, got: np.ndarray, numbers: int, here: np.ndarray) -> dict[str, Any]:
        found = meter.agreement(got, exact[np.ix_(here, here)], bench.source[here])
        return {"signature": name, "numbers": numbers, "rows": len(here), **found}

    for setting in settings:
        rows, here = bench.view(setting)
        signature = signatures.get(setting.name)
        if signature is None:
            signature = sign_alone(build(bench.load(setting), setting), rows)
        result = line(setting.name, meter.cosines(signature), signature.shape[1], here)
        if setting.costed and bench.arguments.repeats:
            result["cost"] = relative_cost(bench, setting, bench.arguments.repeats)
        save(result)
    everything = np.arange(len(bench.rows))
    topic = sign_alone(EmbeddingSigner(bench.load()), bench.rows)
    save(line("mean hidden state (topic)", meter.cosines(topic), topic.shape[1], everything))
    save(line("TF-IDF of the text", text_cosines(bench), 0, everything))


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
    bench = Workbench.open(arguments)
    record: dict[str, Any] = {
        "model": Path(arguments.model).name,
        "sources": [Path(path).parent.name for path in arguments.data],
        "rows": len(bench.rows),
        "tokens": sum(len(row.input_ids) for row in bench.rows),
        "length": arguments.length,
        "threads": torch.get_num_threads(),
        "results": [],
    }
    settings = [s for s in SETTINGS if not arguments.only or arguments.only in s.name]
    for path in arguments.proxy:
        settings.append(Setting(f"proxy: {Path(path).name}", proxy=path, costed=True))

    def save(result: dict[str, Any]) -> None:
        print(json.dumps(result), file=sys.stderr, flush=True)
        record["results"].append(result)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")

    measure(bench, settings, save)


if __name__ == "__main__":
    main()
