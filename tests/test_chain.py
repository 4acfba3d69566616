"""The five commands as a user types them, on a tiny model: outputs, second runs, kills."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from formats import artifacts
from formats.errors import ArtifactError
from tests import tiny

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def chain(model: str) -> dict[str, list[str]]:
    """The arguments of each command, by stage."""
    return {
        "score": f"score data.jsonl -m {model} -o signatures.zarr --rank 8 --dims 64".split(),
        "cluster": "cluster signatures.zarr -o clusters.zarr --clusters 5".split(),
        "select": "select clusters.zarr --fraction 0.31 --weights -o selection.jsonl".split(),
        "allocate": "allocate selection.jsonl --ranks 2 --micro-batch 4 -o allocation".split(),
        "train": f"train allocation -m {model} -o run --learning-rate 1e-3".split(),
    }


OUTPUTS = {
    "score": ("signatures.zarr", "signatures"),
    "cluster": ("clusters.zarr", "clusters"),
    "select": ("selection.jsonl", "selection"),
    "allocate": ("allocation", "allocation"),
    "train": ("run", "run"),
}


def command(arguments: list[str], folder: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cluster_cli", *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=180,
        **more,
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.save(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, base: str) -> Path:
    """A folder, its name full of traps, in which all five commands have run."""
    folder = tmp_path_factory.mktemp("my précious data")
    tiny.write_jsonl(folder / "data.jsonl", tiny.questions(120))
    for arguments in chain(base).values():
        result = command(arguments, folder)
        assert result.returncode == 0, result.stderr
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
    return folder


def test_a_model_comes_out_and_nothing_is_left_behind(done: Path) -> None:
    assert sorted(path.name for path in done.iterdir()) == sorted(
        ["data.jsonl", *(name for name, _ in OUTPUTS.values())]
    )
    import torch
    from transformers import AutoModelForCausalLM

    trained = AutoModelForCausalLM.from_pretrained(done / "run" / "model")
    before = tiny.model().state_dict()
    after = trained.state_dict()
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_what_was_selected_is_what_was_trained_with_the_mix_restored(done: Path) -> None:
    """By the documented schema alone: zarr and json, none of the project's code."""
    clusters = zarr.open_group(done / "clusters.zarr", mode="r")
    label, size = clusters["label"][:], clusters["size"][:]
    lines = [json.loads(line) for line in (done / "selection.jsonl").read_text().splitlines()]
    header, rows = lines[0], lines[1:]
    assert len(rows) == header["stats"]["selected"] == 37  # 31 % of 120 examples
    assert [row["cluster"] for row in rows] == [label[row["row"]] for row in rows]
    weights = np.array([row["weight"] for row in rows])
    mine = np.array([row["cluster"] for row in rows])
    shares = np.bincount(mine, weights=weights) / weights.sum()
    np.testing.assert_allclose(shares, size / size.sum(), atol=1e-9)
    assert abs(weights.mean() - 1) < 1e-12

    planned: dict[int, float] = {}
    for path in sorted((done / "allocation").glob("rank-*.jsonl")):
        for line in path.read_text().splitlines():
            micro = json.loads(line)
            planned.update(zip(micro["rows"], micro["weights"], strict=True))
    assert planned == {row["row"]: row["weight"] for row in rows}

    run = json.loads((done / "run" / "run.json").read_text())
    metrics = [json.loads(x) for x in (done / "run" / "metrics.jsonl").read_text().splitlines()]
    assert run["stats"]["steps"] == len(metrics) == 5  # 37 examples by 2 ranks of 4
    assert sum(line["examples"] for line in metrics) == 37
    assert run["stats"]["tokens"] == sum(row["tokens"] for row in rows)


@pytest.mark.parametrize("stage", list(OUTPUTS))
def test_a_second_run_does_nothing_and_loads_nothing(done: Path, base: str, stage: str) -> None:
    program = (
        "import sys; from cluster_cli.main import run; code = run(sys.argv[1:]); "
        "heavy = [m for m in ('torch', 'transformers', 'sklearn', 'deepspeed') if m in sys.modules];"
        " sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    name, kind = OUTPUTS[stage]
    stamp = artifacts.stamp(done / name, kind)
    os.utime(stamp, (1, 1))
    result = subprocess.run(
        [sys.executable, "-c", program, *chain(base)[stage]],
        cwd=done,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stderr) == (0, f"{name} is up to date\n")
    assert stamp.stat().st_mtime > 1


def test_the_header_comes_on_stdout_when_asked_for(done: Path, base: str) -> None:
    for stage, arguments in chain(base).items():
        result = command([*arguments, "--json"], done)
        assert json.loads(result.stdout)["format"] == f"cluster-cli/{OUTPUTS[stage][1]}"


def test_a_folder_moved_as_a_whole_still_works(done: Path, base: str, tmp_path: Path) -> None:
    import shutil

    moved = tmp_path / "moved"
    shutil.copytree(done, moved)
    shutil.rmtree(moved / "run")
    result = command(chain(base)["train"], moved)
    assert result.returncode == 0, result.stderr


def test_a_changed_data_file_is_refused_before_training(
    done: Path, base: str, tmp_path: Path
) -> None:
    import shutil

    changed = tmp_path / "changed"
    shutil.copytree(done, changed)
    shutil.rmtree(changed / "run")
    text = (changed / "data.jsonl").read_text().replace("What is 3 plus", "What was 3 plus")
    (changed / "data.jsonl").write_text(text)
    result = command(chain(base)["train"], changed)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert "data.jsonl" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (changed / "run").exists()


@pytest.mark.parametrize("stage", list(OUTPUTS))
def test_kill_9_leaves_the_artifact_complete_or_absent(
    done: Path, base: str, stage: str, tmp_path: Path
) -> None:
    """Killed at a random moment, then run again: the result is the one of an undisturbed run."""
    import shutil

    folder = tmp_path / "work"
    shutil.copytree(done, folder)
    name, kind = OUTPUTS[stage]
    wanted = artifacts.read_header(folder / name, kind).key
    target = folder / name
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    arguments = [sys.executable, "-m", "cluster_cli", *chain(base)[stage]]
    rng = random.Random(stage)
    longest = {"score": 4.0, "cluster": 2.5, "train": 10.0}.get(stage, 0.7)
    process = subprocess.Popen(arguments, cwd=folder, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    time.sleep(rng.uniform(longest / 4, longest))
    process.kill()
    process.wait()
    try:
        assert artifacts.read_header(target, kind).key == wanted
    except ArtifactError:
        assert not target.exists()
    result = command(chain(base)[stage], folder)
    assert result.returncode == 0, result.stderr
    assert artifacts.read_header(target, kind).key == wanted
    leftovers = {path.name for path in folder.iterdir()} - {path.name for path in done.iterdir()}
    assert not leftovers
