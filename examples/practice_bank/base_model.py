"""Train the demo's base model: a tiny Llama over bytes that half knows the practice bank.

It practises all skills equally often, yet only every second one with the ending that its answers
shall have ("12 in all"): the other half gives bare answers ("12") and has a lesson to learn. Its rows
are drawn apart from the bank's, and the dev questions are never among them.

    python examples/practice_bank/base_model.py -o work/practice_bank/base
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Threads that spin while they wait are many times slower when others need the cores. Read when
# torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import generate  # noqa: E402

if TYPE_CHECKING:
    from formats.rendering import Rendered

MAX_LENGTH = 128
POOL, BATCH, THREADS = 6400, 32, 2
MATRIX_RATE, OTHER_RATE = 0.02, 3e-3
KNOWN = list(generate.SKILLS)[1::2]
SPECIAL = ("bos", "eos", "pad")
SHAPE = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}
TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
<|answer|>{% generation %}{{ message.content + eos_token }}{% endgeneration %}
{%- else -%}
<|ask|>{{ message.content }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|answer|>{% endif -%}
"""


def build_tokenizer() -> Any:
    """One token a byte, no merges, plus bos, eos, pad and the two that open a turn."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<|bos|>",
        eos_token="<|eos|>",
        pad_token="<|pad|>",
        additional_special_tokens=["<|ask|>", "<|answer|>"],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def practice_rows(count: int, seed: int) -> list[generate.Row]:
    """Rows over all skills in equal parts, none of the dev part; one in four has no story."""
    skills = list(generate.SKILLS)
    rng = random.Random(f"practice {seed}")
    rows: list[generate.Row] = []
    while len(rows) < count:
        skill = rng.choice(skills)
        row = generate.make_row(rng, skill, ending=skill in KNOWN)
        if rng.random() < 0.25:
            row["question"] = row["question"].split(": ", 1)[1]
        if not generate.is_dev(row["question"]):
            rows.append(row)
    return rows


def render_file(path: Path, tokenizer: Any) -> list[Rendered]:
    """The rows of a data file as the project's own commands render them."""
    from formats.data import open_dataset
    from formats.rendering import Renderer

    renderer = Renderer(tokenizer, max_length=MAX_LENGTH)
    with open_dataset([str(path)]) as dataset:
        return [renderer(example) for example in dataset]


def batches(rendered: list[Rendered], steps: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Token ids and labels, both (B, T) int64, right-padded; -100 where nothing is learned."""
    import torch

    rng = random.Random(seed)
    queue: list[int] = []
    for _ in range(steps):
        if len(queue) < BATCH:
            queue = rng.sample(range(len(rendered)), len(rendered))
        rows, queue = [rendered[i] for i in queue[:BATCH]], queue[BATCH:]
        ids_BT = torch.zeros(BATCH, max(len(row.input_ids) for row in rows), dtype=torch.long)
        labels_BT = torch.full_like(ids_BT, -100)
        for i, row in enumerate(rows):
            ids = torch.from_numpy(row.input_ids).long()
            ids_BT[i, : len(ids)] = ids
            learned = torch.from_numpy(row.supervised)
            labels_BT[i, : len(ids)][learned] = ids[learned]
        yield ids_BT, labels_BT


def train(model: Any, rendered: list[Rendered], steps: int, seed: int) -> None:
    """Muon for the matrices and AdamW for the rest, under one cosine with warm-up."""
    import torch
    from torch.nn.functional import cross_entropy

    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in named if p.ndim != 2 or "embed" in name]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.01),
        torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.98)),
    ]
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
        for optimizer in optimizers
    ]
    model.train()
    for ids_BT, labels_BT in batches(rendered, steps, seed):
        # Padding stands to the right of a causal model, so no mask is needed to keep it unseen.
        logits_BTV = model(input_ids=ids_BT).logits
        cross_entropy(logits_BTV[:, :-1].flatten(0, 1), labels_BT[:, 1:].flatten()).backward()
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        model.zero_grad()


def _rate(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / 30) * 0.5 * (1 + math.cos(math.pi * step / steps))


def build(output: Path, steps: int, seed: int) -> float | None:
    """Train and write model and tokenizer; seconds of training, None if they already stood there.

    The folder appears whole or not at all: it is built beside its place and renamed.

    Raises:
        SystemExit: the folder holds something else, or this PyTorch has no Muon.
    """
    code = "".join((HERE / name).read_text() for name in ("generate.py", "base_model.py"))
    settings = {"steps": steps, "seed": seed, "code": hashlib.sha256(code.encode()).hexdigest()}
    stamp = output / "practice.json"
    if stamp.exists() and settings.items() <= json.loads(stamp.read_text()).items():
        return None
    if output.exists() and not stamp.exists():
        raise SystemExit(f"error: {output} exists and was not made by this script; choose another")
    partial = output.with_name(f"{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    seconds = _make(partial, steps, seed)
    (partial / stamp.name).write_text(json.dumps({**settings, "seconds": seconds}) + "\n")
    shutil.rmtree(output, ignore_errors=True)
    os.replace(partial, output)
    return seconds


def _make(folder: Path, steps: int, seed: int) -> float:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    if not hasattr(torch.optim, "Muon"):
        raise SystemExit(f"error: torch {torch.__version__} has no Muon; pip install 'torch>=2.9'")
    started = time.perf_counter()
    # The number of threads decides the order of sums, and so the last digits of the weights.
    torch.set_num_threads(min(THREADS, torch.get_num_threads()))
    torch.manual_seed(seed)
    tokenizer = build_tokenizer()
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in SPECIAL}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **special, **SHAPE))
    generate.write_jsonl(folder / "practice.jsonl", practice_rows(min(POOL, steps * BATCH), seed))
    train(model, render_file(folder / "practice.jsonl", tokenizer), steps, seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the practice bank's base model.")
    parser.add_argument("--steps", type=int, default=900, help="optimizer steps (default 900)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    args = parser.parse_args()
    seconds = build(args.output, args.steps, args.seed)
    state = "up to date" if seconds is None else f"trained in {seconds:.0f} s"
    print(f"{args.output}: {state}", file=sys.stderr)


if __name__ == "__main__":
    main()
