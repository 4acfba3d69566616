"""The same training in plain PyTorch: one process, one example at a time, no padding, no DeepSpeed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from formats.allocation import Allocation
from formats.data import open_reference
from formats.rendering import Renderer
from stages import models

Lines = list[tuple[float, int]]  # (weight, row) of one step


def read_steps(allocation: Allocation) -> list[Lines]:
    """What all ranks take in each step, in no particular order."""
    steps: list[Lines] = [[] for _ in range(allocation.steps)]
    for rank in range(allocation.ranks):
        for batch in allocation.rank(rank):
            steps[batch.step] += zip(batch.weights, batch.rows, strict=True)
    return steps


def train(
    allocation_path: Path,
    model_path: Path,
    optimizer: Any,
    *,
    clip: float,
    rate: Any = None,
    per_token: bool = False,
    lora: int | None = None,
) -> tuple[list[float], dict[str, Any]]:
    """Losses per step and the weights at the end.

    Args:
        optimizer: makes one from the parameters.
        clip: gradient norm to clip at; 0 for none.
        rate: learning rate of a step; None leaves the optimizer's own.
        per_token: sums of token losses over the mean number of tokens, instead of their means.
        lora: rank of adapters; then their weights are given back.
    """
    import torch

    torch.set_num_threads(1)  # threads cost more than they bring on a model this small
    allocation = Allocation.open(allocation_path)
    files = models.find_model(model_path)
    model = models.load_model(files, dtype=torch.float32)
    render = Renderer(models.load_tokenizer(files), max_length=64)
    dataset = open_reference(allocation.header.dataset, allocation_path.parent)
    model = _adapted(model, lora) if lora else model
    optimize = optimizer([weight for weight in model.parameters() if weight.requires_grad])
    losses = []
    rows = [row for step in read_steps(allocation) for _, row in step]
    mean = sum(int(render(dataset[row]).supervised.sum()) for row in rows) / len(rows)
    for number, step in enumerate(read_steps(allocation)):
        of_tokens = [(w, _token_losses(model, render(dataset[row]))) for w, row in step]
        of_examples = [w * (e.sum() / mean if per_token else e.mean()) for w, e in of_tokens]
        loss = sum(of_examples) / allocation.batch
        optimize.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        for group in optimize.param_groups if rate else ():
            group["lr"] = rate(number)
        optimize.step()
        losses.append(float(loss.detach()))
    if lora:
        from peft import get_peft_model_state_dict

        return losses, get_peft_model_state_dict(model)
    return losses, {name: weight.detach() for name, weight in model.state_dict().items()}


def _adapted(model: Any, rank: int) -> Any:
    import peft
    import torch

    torch.manual_seed(0)
    config = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return peft.get_peft_model(model, config)


def _token_losses(model: Any, rendered: Any) -> Any:
    import torch

    ids = torch.tensor(rendered.input_ids, dtype=torch.int64)
    logits = model(input_ids=ids[None]).logits[0, :-1]
    learned = torch.tensor(rendered.supervised[1:])
    log_probabilities = logits.log_softmax(-1)[learned]
    return -log_probabilities.gather(1, ids[1:][learned][:, None])[:, 0]
