"""Exact-match accuracy of a saved model on the practice bank's dev rows, skill by skill.

Prompts are cut from the project's own rendering, where the answer begins, so the model is asked
exactly as it was trained. Answers are decoded greedily and must match to the letter.

    python examples/practice_bank/evaluate.py work/practice_bank/base work/practice_bank/dev.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

MAX_LENGTH, MAX_NEW_TOKENS, BATCH = 128, 24, 120


def read_prompts(tokenizer: Any, dev: Path) -> list[tuple[list[int], dict[str, Any]]]:
    """(prompt tokens, row) of every dev row, shortest prompt first so that batches pad little."""
    from formats.data import open_dataset
    from formats.rendering import Renderer

    renderer = Renderer(tokenizer, max_length=MAX_LENGTH)
    prompts = []
    with open_dataset([str(dev)]) as dataset:
        for example in dataset:
            rendered = renderer(example)
            prompt = rendered.input_ids[: rendered.supervised.argmax()].tolist()
            prompts.append((prompt, example.columns))
    return sorted(prompts, key=lambda pair: len(pair[0]))


def answers(model: Any, tokenizer: Any, prompts: list[list[int]]) -> Iterator[str]:
    """Greedy answers; prompts are padded on the left, so that all end where the answer begins."""
    import torch

    for at in range(0, len(prompts), BATCH):
        part = prompts[at : at + BATCH]
        width = max(map(len, part))
        pad = tokenizer.pad_token_id
        ids_BT = torch.tensor([[pad] * (width - len(p)) + p for p in part])
        mask_BT = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in part])
        made_BT = model.generate(
            input_ids=ids_BT,
            attention_mask=mask_BT,
            max_new_tokens=MAX_NEW_TOKENS,
            do_sample=False,
            pad_token_id=pad,
        )
        yield from tokenizer.batch_decode(made_BT[:, width:], skip_special_tokens=True)


def evaluate(model_dir: Path, dev: Path) -> dict[str, Any]:
    """Accuracy of one model.

    Returns:
        ``rows``; ``macro``, the mean of the skills' accuracies; ``skills``: by name, ``rows``,
        ``correct`` and ``accuracy``.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir, use_safetensors=True).eval()
    pairs = read_prompts(tokenizer, dev)
    hits: dict[str, list[bool]] = defaultdict(list)
    said = answers(model, tokenizer, [prompt for prompt, _ in pairs])
    for (_, row), answer in zip(pairs, said, strict=True):
        hits[row["skill"]].append(answer == row["answer"])
    skills = {
        skill: {"rows": len(hit), "correct": sum(hit), "accuracy": sum(hit) / len(hit)}
        for skill, hit in sorted(hits.items())
    }
    macro = sum(figures["accuracy"] for figures in skills.values()) / len(skills)
    return {"rows": len(pairs), "macro": macro, "skills": skills}


def main() -> None:
    parser = argparse.ArgumentParser(description="Exact-match accuracy per skill, as JSON.")
    parser.add_argument("model", type=Path, help="a saved model and tokenizer")
    parser.add_argument("dev", type=Path, help="dev.jsonl of the practice bank")
    args = parser.parse_args()
    print(json.dumps(evaluate(args.model, args.dev), indent=2))


if __name__ == "__main__":
    main()
