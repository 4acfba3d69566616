"""The tutorial, typed as it stands: every block marked ``sh run``, one after the other, on a tiny model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import prepared, tiny

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh run\n(.*?)```", PAGE, re.DOTALL)
SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
# What a reader is asked to look at and a tiny model needs.
SETTINGS = """
[score]
rank = 4
dims = 32
[cluster]
clusters = 4
[allocate]
micro-batch = 4
[train]
learning-rate = 1e-3
zero-stage = 0
"""


def edited(text: str) -> str:
    """The file that ``init`` wrote, with these settings under the sections it already has."""
    for section, lines in re.findall(r"\[(\w+)\]\n((?:[^\[].*\n)+)", SETTINGS):
        text = text.replace(f"\n[{section}]\n", f"\n[{section}]\n{lines}")
    return text


def test_it_names_its_steps() -> None:
    assert len(BLOCKS) == 14
    assert len(SHOWN) == 2


@pytest.mark.slow
def test_every_step_does_what_is_said(tmp_path: Path) -> None:
    tiny.save(tmp_path / "base")
    tiny.write_jsonl(tmp_path / "all.jsonl", tiny.questions(120))
    programs = tmp_path / "bin"
    programs.mkdir()
    script = programs / "cluster-cli"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cluster_cli "$@"\n')
    script.chmod(0o755)
    environment = {
        **prepared.ENVIRONMENT,
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
    }
    said = []
    for block in BLOCKS:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"
        said.append(done.stdout)
        if block.startswith("cluster-cli init"):
            file = tmp_path / "cluster.toml"
            file.write_text(edited(file.read_text()))
    assert [text for text in said if text in SHOWN] == SHOWN
    assert "better than random" in "".join(said) or "distinguishable" in "".join(said)
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    found = json.loads((tmp_path / "work" / "evaluation.json").read_text())
    assert found["stats"]["measured"] == 40
