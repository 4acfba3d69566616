"""Building DeepSpeed's engine around a model, and getting the trained model out of it again."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from stages.workers import export_world

_BETAS, _EPS = (0.9, 0.999), 1e-8


def join_ranks(device: str) -> None:
    """Connects this process with the other ranks, through DeepSpeed's communication layer."""
    export_world()
    logging.disable(logging.INFO)
    if device == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    if device == "cpu":
        # Compiled on the spot, it saves some milliseconds a step, and a rank that dies leaves the
        # others spinning in it for ever; gloo notices.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    elif device.startswith("cuda"):
        torch.cuda.set_device(device)
    deepspeed.init_distributed(
        dist_backend="gloo" if device == "cpu" else "nccl",
        auto_mpi_discovery=False,
        timeout=timedelta(minutes=30),
        verbose=False,
    )


def seed_everything(seed: int) -> None:
    """Seeds Python, NumPy and PyTorch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def build_engine(
    model: Any, config: dict[str, Any], *, learning_rate: float, weight_decay: float, device: str
) -> Any:
    """DeepSpeed's engine; the optimizer is AdamW unless the configuration has its own.

    AdamW as of Loshchilov and Hutter 2019 (decoupled weight decay), as PyTorch implements it; its fused
    kernels on a GPU, and on the CPU where the optimizer's state is offloaded to it. (DeepSpeed's own CPU
    Adam, which a configuration file can name, is compiled on the spot and needs a compiler.)
    """
    import deepspeed

    optimizer = None
    if "optimizer" not in config:
        offloaded = bool(config["zero_optimization"].get("offload_optimizer"))
        optimizer = torch.optim.AdamW(
            parameter_groups(model, weight_decay),
            lr=learning_rate,
            betas=_BETAS,
            eps=_EPS,
            fused=device.startswith("cuda") or offloaded,
        )
    trainable = [weight for weight in model.parameters() if weight.requires_grad]
    with contextlib.redirect_stdout(io.StringIO()):  # memory figures, printed as it goes
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=trainable, optimizer=optimizer, config=config
        )
    engine.train()
    return engine


def parameter_groups(model: Any, weight_decay: float) -> list[dict[str, Any]]:
    """Trainable weights in two groups: matrices decay, biases and norms (one dimension) do not."""
    trainable = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [
        {"params": [w for w in trainable if w.dim() > 1], "weight_decay": weight_decay},
        {"params": [w for w in trainable if w.dim() <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def set_learning_rate(engine: Any, rate: float) -> None:
    """Sets the rate of all parameter groups."""
    for group in engine.optimizer.param_groups:
        group["lr"] = rate


def gradient_norm(engine: Any) -> float | None:
    """The 2-norm of the whole gradient before clipping, where DeepSpeed keeps it itself."""
    norm = engine.get_global_grad_norm()
    return None if norm is None else float(norm)


def plain_gradient_norm(engine: Any) -> float:
    """The same for plain data parallelism (ZeRO 0, float32), where DeepSpeed does not keep it."""
    norms = [weight.grad.norm() for weight in engine.module.parameters() if weight.grad is not None]
    return float(torch.stack(norms).norm())


def whole_state(engine: Any) -> dict[str, torch.Tensor] | None:
    """The module's state dictionary, put together on rank 0 from all ranks' parts under ZeRO 3.

    None where every rank has the whole module already. Frozen weights are left out.
    """
    return dict(_gathered(engine.module)) if engine.zero_optimization_stage() == 3 else None


def _gathered(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Its entries, one after the other."""
    import deepspeed

    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        with deepspeed.zero.GatheredParameters([weight]):
            if dist.get_rank() == 0:
                yield name, weight.detach().cpu().clone()
    saved = model.state_dict().keys()  # some buffers are made anew on loading
    if dist.get_rank() == 0:
        yield from ((name, buffer) for name, buffer in model.named_buffers() if name in saved)
