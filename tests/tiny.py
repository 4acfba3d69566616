"""A tiny Llama with a byte-level tokenizer, built on the fly: what tests use for a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def tokenizer() -> Any:
    """One token per byte, plus <pad>, <s> and </s>; no chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<s>", "</s>", *alphabet])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


def model(seed: int = 0, layers: int = 2, width: int = 32, **settings: Any) -> Any:
    """A Llama with random weights, float32, in evaluation mode."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=259,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **settings,
    )
    return LlamaForCausalLM(config).eval()


def save(folder: Path, **settings: Any) -> Path:
    """The tiny model and its tokenizer, saved in Hugging Face form."""
    model(**settings).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows as JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def questions(count: int) -> list[dict[str, Any]]:
    """Distinct little sums as question and answer rows, of unequal length."""
    return [
        {"question": f"What is {i} plus {i % 7}?" + " Think." * (i % 3), "answer": str(i + i % 7)}
        for i in range(count)
    ]
