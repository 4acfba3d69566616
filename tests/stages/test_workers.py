"""Who a process is, under each of the launchers."""

from __future__ import annotations

import os

import pytest

from stages.workers import World, first_host, inside_launch, share_of_cores, world

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_NTASKS": "4",
}
BATCH_SCRIPT = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}


@pytest.mark.parametrize(
    ("environment", "inside", "expected"),
    [
        ({}, False, World(0, 1, 0)),
        (TORCHRUN, True, World(5, 8, 1)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, True, World(0, 1, 0)),
        ({"RANK": "3"}, False, World(0, 1, 0)),
        (SRUN, True, World(3, 4, 1)),
        (BATCH_SCRIPT, False, World(0, 1, 0)),
        ({**SRUN, **TORCHRUN}, True, World(5, 8, 1)),
    ],
)
def test_world(environment: dict[str, str], inside: bool, expected: World) -> None:
    assert inside_launch(environment) is inside
    assert world(environment) == expected


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node7", "node7"),
        ("node7,node9", "node7"),
        ("node[03-07,9],other", "node03"),
        ("login,node[1-2]", "login"),
        ("gpu[5,8]", "gpu5"),
    ],
)
def test_first_host(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


def test_share_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = len(os.sched_getaffinity(0))
    assert share_of_cores(1) == str(cores)
    assert share_of_cores(10_000) == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "17")
    assert share_of_cores(2) == "17"
