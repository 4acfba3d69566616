"""The medical and code pipelines at toy scale, by their own Makefiles, on two CPU ranks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from formats.artifacts import read_header
from tests import prepared, tiny

EXAMPLES = prepared.ROOT / "examples"
pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")


def make(folder: Path, *arguments: str) -> str:
    """Runs make; everything it and its commands said."""
    mine = {k: v for k, v in prepared.ENVIRONMENT.items() if not k.startswith(("MAKE", "MFLAGS"))}
    mine["CLUSTER_CLI_EVALUATE_MAX_NEW_TOKENS"] = "64"  # the tiny model has 512 positions in all
    done = subprocess.run(
        ["make", f"CLUSTER_CLI={sys.executable} -m cluster_cli", "RANKS=2", *arguments],
        cwd=folder,
        env=mine,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def example(name: str, to: Path, rows: list[dict[str, Any]]) -> Path:
    """A copy of an example with a tiny model, and a part of the rows held out."""
    folder = Path(shutil.copytree(EXAMPLES / name, to))
    tiny.save(folder / "model")
    tiny.write_jsonl(folder / "train.jsonl", rows[8:])
    tiny.write_jsonl(folder / "dev.jsonl", rows[:8])
    return folder


def test_medical_selects_trains_and_evaluates_by_question_type(tmp_path: Path) -> None:
    rows = [
        {**row, "qtype": ("symptoms", "treatment")[i % 2]}
        for i, row in enumerate(tiny.questions(72))
    ]
    folder = example("medical", tmp_path / "here", rows)
    make(folder)
    run = read_header(folder / "work/full/run", "run")
    assert run.stats["world_size"] == 2
    assert run.stats["zero_stage"] == 3
    found = json.loads((folder / "work/full/evaluation.json").read_text())["results"]
    assert set(found["by"]["qtype"]) == {"symptoms", "treatment"}
    said = make(folder)
    assert "train: work/full/run is up to date" in said
    assert "work/full/evaluation.json is up to date" in said


@pytest.mark.slow
def test_medical_with_lora(tmp_path: Path) -> None:
    rows = [{**row, "qtype": "symptoms"} for row in tiny.questions(72)]
    folder = example("medical", tmp_path / "here", rows)
    make(folder, "LORA=1")
    assert read_header(folder / "work/lora/run", "run").params["lora"] == 16


@pytest.mark.slow
def test_code_trains_and_runs_programs_with_their_tests(tmp_path: Path) -> None:
    rows = [
        {
            "instruction": f"Add {i} to a number.",
            "input": "",
            "output": f"def f(x):\n    return x + {i}",
        }
        for i in range(72)
    ]
    folder = example("code", tmp_path / "here", rows)
    tests = [
        {"text": "Add 1.", "code": "def f(x):\n    return x + 1", "test_list": ["assert f(1) == 2"]}
    ]
    tiny.write_jsonl(folder / "tests.jsonl", tests)
    make(folder, "evaluate", "pass")
    found = json.loads((folder / "work/full/pass.json").read_text())["results"]
    assert found["overall"]["pass_at_1"]["value"] in (0.0, 1.0)
