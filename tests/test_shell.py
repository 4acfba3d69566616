"""As one uses it in a shell: pipes on both sides, Ctrl-C, and what a terminal is shown."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from formats import artifacts
from tests import prepared, tiny
from tests.synthetic import write_clusters

SCORE = "score - --model model --rank 4 --dims 32 -o signatures.zarr"


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A line of bash in which ``cluster-cli`` is this one."""
    return subprocess.run(
        [
            "bash",
            "-c",
            f'set -o pipefail; cluster-cli() {{ {sys.executable} -m cluster_cli "$@"; }}; {line}',
        ],
        cwd=folder,
        env=prepared.ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("shell") / "model")


def test_rows_come_through_a_pipe_and_json_leaves_through_one(model: Path, tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(model)
    tiny.write_jsonl(tmp_path / "rows.jsonl", tiny.questions(9))
    done = shell(f"cluster-cli {SCORE} --json < rows.jsonl", tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stats"]["usable"] == 9
    assert artifacts.read_header(tmp_path / "signatures.zarr", "signatures").stats["usable"] == 9
    # Ids and weights are needed again when training reads the rows, so they are kept.
    kept = tmp_path / "signatures.zarr.stdin.jsonl"
    assert kept.read_text() == (tmp_path / "rows.jsonl").read_text()


@pytest.mark.skipif(not shutil.which("jq"), reason="jq is not installed")
def test_a_selection_goes_through_jq(tmp_path: Path) -> None:
    write_clusters(tmp_path / "clusters.zarr", np.repeat([0, 1], 10))
    line = "cluster-cli -q select clusters.zarr --count 6 -o - | jq -c 'select(.row) | .cluster'"
    done = shell(line, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == ["0"] * 3 + ["1"] * 3  # the header has no row


def test_control_c_ends_with_130_and_without_an_artifact(model: Path, tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(model)
    tiny.write_jsonl(tmp_path / "rows.jsonl", tiny.questions(2_000))
    with (tmp_path / "rows.jsonl").open() as rows:
        process = subprocess.Popen(
            [sys.executable, "-m", "cluster_cli", *SCORE.split()],
            cwd=tmp_path,
            env=prepared.ENVIRONMENT,
            stdin=rows,
            stderr=subprocess.PIPE,
            text=True,
            # Whoever runs the tests in the background has it ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    assert process.stderr is not None
    assert process.stderr.readline() == "read 2,000 rows of shape qa from 1 source(s)\n"
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert said.split("\n")[-2] == "interrupted"
    assert "Traceback" not in said
    assert not (tmp_path / "signatures.zarr").exists()


@pytest.mark.parametrize("no_color", [{}, {"NO_COLOR": "1"}])
def test_progress_is_drawn_on_stderr_alone_and_without_colours_where_asked(
    no_color: dict[str, str],
) -> None:
    program = (
        "from stages.reporting import Console\n"
        "with Console().progress('score', 3) as advance:\n"
        "    print('data', flush=True); advance(2)\n"
    )
    ours, theirs = pty.openpty()
    plain = {name: value for name, value in prepared.ENVIRONMENT.items() if name != "NO_COLOR"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**plain, "TERM": "xterm-256color", **no_color},
        stdout=subprocess.PIPE,
        stderr=theirs,
        timeout=60,
        check=True,
    )
    drawn = os.read(ours, 1 << 16).decode()
    os.close(ours)
    os.close(theirs)
    assert done.stdout == b"data\n"
    assert "2/3" in drawn
    assert bool(re.search(r"\x1b\[[0-9;]*3\d", drawn)) is not bool(no_color)
