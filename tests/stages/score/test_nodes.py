"""Scoring on two "nodes": one process each, each started by a torchrun of its own, one shared folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import zarr

from formats.signatures import Signatures
from stages.launch import free_port
from stages.score import score
from stages.score.stage import ScoreSettings
from tests import tiny

ROOT = Path(__file__).parents[3]
SMALL = ScoreSettings(rank=8, dims=64, max_length=64)


def start(node: int, port: int, folder: Path) -> subprocess.Popen[str]:
    """One node's torchrun."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"),
        *("--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(port)),
        *("-m", "cluster_cli", "score", "data.jsonl", "--model", "model", "-o", "two.zarr"),
        *("--rank", "8", "--dims", "64", "--max-length", "64", "--block-rows", "8"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, stdout=2, text=True
    )


def arrays(path: Path) -> dict[str, bytes]:
    group = zarr.open_group(path, mode="r")
    return {name: np.asarray(array[:]).tobytes() for name, array in group.arrays()}


def test_two_nodes_give_the_bytes_of_one(tmp_path: Path) -> None:
    import torch

    tiny.save(tmp_path / "model")
    tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(40))  # five blocks
    port = free_port()
    nodes = [start(node, port, tmp_path) for node in range(2)]
    said = [node.communicate(timeout=240)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    score(
        [str(tmp_path / "data.jsonl")],
        str(tmp_path / "model"),
        tmp_path / "one.zarr",
        settings=SMALL,
        block_rows=8,
    )
    torch.set_num_threads(threads)
    one, two = (Signatures.open(tmp_path / f"{name}.zarr") for name in ("one", "two"))
    assert one.header.key == two.header.key
    assert arrays(one.path) == arrays(two.path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("model", "data.jsonl", "one.zarr", "two.zarr")
    }
