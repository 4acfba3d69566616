"""What ``run.json`` says."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
from pathlib import Path
from typing import Any

import torch

from formats import artifacts
from formats.allocation import Allocation
from formats.fingerprints import file_sha256
from stages.models import ModelFiles
from stages.train import plan
from stages.train.settings import Settings


def header(
    settings: Settings, allocation: Allocation, files: ModelFiles, stats: dict[str, Any]
) -> artifacts.Header:
    """The header of a finished run."""
    folder = Path(settings.output).parent
    manifest = Path(settings.allocation) / "manifest.json"
    rows = {"sha256": file_sha256(manifest), "rows": stats["examples"]}
    return artifacts.Header(
        kind="run",
        key=settings.key,
        params=settings.shown(),
        inputs=[
            {"path": os.path.relpath(settings.allocation, folder), **rows},
            {"path": _from(folder, settings.model), "sha256": files.weights_sha256, "rows": None},
            *_earlier(folder, settings),
        ],
        stats={
            **stats,
            "world_size": allocation.ranks,
            "versions": versions(),
            "git_commit": git_commit(),
        },
        dataset=artifacts.rebase_dataset(plan.reference(allocation, settings.data), None, folder),
    )


def _earlier(folder: Path, settings: Settings) -> list[dict[str, Any]]:
    """The run whose model is trained on, if there is one."""
    if not settings.init_from:
        return []
    sha256 = file_sha256(Path(settings.init_from) / "run.json")
    return [{"path": os.path.relpath(settings.init_from, folder), "sha256": sha256, "rows": None}]


def _from(folder: Path, model: str) -> str:
    """A model's place seen from a folder; a Hugging Face name stays as it is."""
    return os.path.relpath(model, folder) if os.path.isabs(model) else model


def peak_memory(device: str) -> int:
    """Bytes: the GPU's, or this process's resident memory on the CPU."""
    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def per_rank(gathered: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean seconds per section, and what is worth comparing between ranks as lists."""
    lists = {"wait": "wait_seconds", "peak": "peak_memory_bytes"}
    means = {
        f"{name}_seconds": sum(each[name] for each in gathered) / len(gathered)
        for name in gathered[0]
        if name not in lists
    }
    return {**means, **{text: [each[name] for each in gathered] for name, text in lists.items()}}


def versions() -> dict[str, str]:
    """Of Python and the libraries that compute."""
    import deepspeed
    import transformers

    modules = {"torch": torch, "transformers": transformers, "deepspeed": deepspeed}
    return {
        "python": platform.python_version(),
        **{name: module.__version__ for name, module in modules.items()},
    }


def git_commit() -> str | None:
    """The commit checked out where the run was started, if that is a git repository."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
