"""Which layers of a model are signed, and how much of the model they are."""

from __future__ import annotations

import re
from typing import Any

import torch

from formats.errors import SettingError


def choose_layers(model: Any, layers: str) -> list[str]:
    """Names of the linear layers to sign, in the model's order; never the output head.

    Raises:
        SettingError: the pattern is no regular expression, or nothing matches.
    """
    head = model.get_output_embeddings()
    names = [
        name
        for name, module in model.named_modules()
        if module is not head and linear_shape(module) is not None
    ]
    if layers != "all":
        names = _matching(names, layers)
    if not names:
        raise SettingError(f"--layers {layers!r} matches no linear layer of the model")
    return names


def _matching(names: list[str], layers: str) -> list[str]:
    last = re.fullmatch(r"last:(\d+)", layers)
    if last:
        numbers = {name: re.search(r"\.(\d+)\.", name) for name in names}
        found = {name: int(match[1]) for name, match in numbers.items() if match}
        depths = sorted(set(found.values()))[-int(last[1]) or len(names) :]
        return [name for name in names if found.get(name) in depths]
    try:
        return [name for name in names if re.search(layers, name)]
    except re.error as error:
        raise SettingError(f"--layers {layers!r} is no regular expression ({error})") from error


def linear_shape(module: Any) -> tuple[int, int] | None:
    """(outputs, inputs) of a linear layer, GPT-2's Conv1D included; None for anything else."""
    if isinstance(module, torch.nn.Linear):
        return module.out_features, module.in_features
    if type(module).__name__ == "Conv1D" and getattr(module, "weight", None) is not None:
        size_I, size_O = module.weight.shape
        return size_O, size_I
    return None


def coverage(model: Any) -> tuple[float, list[str]]:
    """The share of the model's weights that signatures can see, and the modules they cannot.

    Counted are matrices outside the embeddings and the output head. What cannot be hooked are weights
    that are no linear layer of their own, such as the fused experts of a mixture.
    """
    outside = {
        id(weight)
        for module in (model.get_input_embeddings(), model.get_output_embeddings())
        for weight in module.parameters()
    }
    seen = hidden = 0
    names = set()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Embedding):  # positions
            continue
        for weight in module.parameters(recurse=False):
            if weight.dim() < 2 or id(weight) in outside:
                continue
            if linear_shape(module) is not None:
                seen += weight.numel()
            else:
                hidden += weight.numel()
                names.add(re.sub(r"\.\d+\.", ".*.", name))
    return seen / max(1, seen + hidden), sorted(names)
