"""One small chain, run once by the real command and shared by tests that look at its artifacts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("CLUSTER_CLI_")},
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
}
ROWS, BLOCK = 60, 16
TOML = f"""\
[score]
data = "data.jsonl"
model = "model"
rank = 8
dims = 64
block-rows = {BLOCK}
[cluster]
clusters = 4
[select]
fraction = 0.31
weights = true
[allocate]
ranks = 1
micro-batch = 4
epochs = 2
[train]
learning-rate = 1e-3
zero-stage = 0
"""
OUTPUTS = {
    "score": "signatures.zarr",
    "cluster": "clusters.zarr",
    "select": "selection.jsonl",
    "allocate": "allocation",
    "train": "run",
}
_made: list[Path | str] = []


def cluster_cli(*arguments: str, cwd: Path, **more: object) -> subprocess.CompletedProcess[str]:
    """The command as a user types it."""
    return subprocess.run(
        [sys.executable, "-m", "cluster_cli", *arguments],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=180,
        **more,  # type: ignore[call-overload, arg-type]
    )


def untouched(factory: pytest.TempPathFactory) -> Path:
    """The folder with ``cluster.toml``, data, model and all five outputs in ``work``; do not change it."""
    if not _made:
        folder = factory.mktemp("prepared")
        tiny.save(folder / "model")
        tiny.write_jsonl(folder / "data.jsonl", tiny.questions(ROWS))
        (folder / "cluster.toml").write_text(TOML)
        done = cluster_cli("run", cwd=folder)
        _made.append(done.stderr if done.returncode else folder)
    made = _made[0]
    assert isinstance(made, Path), made  # a failure is not tried again by every test
    return made


def copy(factory: pytest.TempPathFactory, to: Path) -> Path:
    """A copy to change, as ``to``; times of the files are kept."""
    return Path(shutil.copytree(untouched(factory), to, dirs_exist_ok=True))
