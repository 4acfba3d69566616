"""Stopping a run in every way, and going on: the same losses and weights to the last bit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from formats import artifacts, runs
from formats.errors import ArtifactError, SettingError
from stages.train import checkpoints
from tests.stages.train.places import ROOT, Place, figures


def start(place: Place, *flags: str) -> subprocess.Popen[str]:
    command = [
        *(sys.executable, "-m", "cluster_cli", "train", str(place.plan), "--model"),
        *(str(place.model), "-o", str(place.folder / "run"), "--learning-rate", "1e-3", *flags),
    ]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def wait_for_steps(place: Place, process: subprocess.Popen[str], steps: int) -> None:
    metrics = place.folder / "run.partial" / runs.METRICS
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if metrics.exists() and len(metrics.read_text().splitlines()) >= steps:
            return
        time.sleep(0.002)


def assert_same_run(place: Place, trained: Place) -> None:
    mine, theirs = place.folder / "run", trained.folder / "run"
    assert figures(mine) == figures(theirs)
    weights = [folder / "model" / "model.safetensors" for folder in (mine, theirs)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    stats = [artifacts.read_header(folder, "run").stats for folder in (mine, theirs)]
    for name in ("steps", "examples", "tokens", "padded_tokens", "first_loss", "last_loss"):
        assert stats[0][name] == stats[1][name]


def test_checkpoints_are_kept_two_deep(trained: Place) -> None:
    kept = checkpoints.found(trained.folder / "run")
    assert [path.name for path in kept] == ["step-00000050", "step-00000055"]
    assert checkpoints.read_state(kept[0]).step == 50


def victims(front: subprocess.Popen[str], who: str) -> list[psutil.Process]:
    """Whom to kill."""
    family = psutil.Process(front.pid).children(recursive=True)
    ranks = [each for each in family if "stages.train.worker" in each.cmdline()[:5]]
    launcher = [each for each in family if each not in ranks]
    return {
        "rank": ranks[-1:],
        "launcher": launcher,
        "front": [psutil.Process(front.pid)],
        "all": [psutil.Process(front.pid), *family],
    }[who]


def kill(front: subprocess.Popen[str], who: str) -> None:
    """Kills, and sees to it that nobody else is left."""
    family = psutil.Process(front.pid).children(recursive=True)
    for victim in victims(front, who):
        victim.kill()
    assert front.wait(60) != 0
    assert not psutil.wait_procs(family, timeout=10)[1]


def test_sigterm_then_kill_9_then_to_the_end(place: Place, trained: Place) -> None:
    front = start(place)
    wait_for_steps(place, front, 3)
    front.send_signal(signal.SIGTERM)
    assert front.wait(60) == 143
    (only,) = checkpoints.found(place.folder / "run.partial")
    step = checkpoints.step_of(only)
    assert front.stderr is not None
    assert f"stopped before step {step}, checkpoint written" in front.stderr.read()
    assert_guarded(place, step)

    front = start(place, "--checkpoint-every", "1", "--resume")
    wait_for_steps(place, front, step + 3)  # a killed run has more lines than its checkpoint
    kill(front, "front")
    assert not (place.folder / "run").exists()

    header = place.train(learning_rate=1e-3, resume=True)
    assert header.stats["resumed"] == 2
    assert_same_run(place, trained)


def assert_guarded(place: Place, step: int) -> None:
    """A checkpoint is neither thrown away nor used for another run."""
    built = place.folder / "run.partial"
    with pytest.raises(ArtifactError) as caught:
        place.train(learning_rate=1e-3)
    assert str(caught.value) == (
        f"{built} holds a checkpoint of this run at step {step}; "
        "go on with --resume, or begin again with --force"
    )
    with pytest.raises(ArtifactError) as caught:
        place.train(learning_rate=2e-3, seed=1, resume=True)
    assert str(caught.value) == (
        f"{built} holds checkpoints of a run with learning_rate 0.001 instead of 0.002, "
        "seed 0 instead of 1; give that run's settings with --resume, or begin again with --force"
    )


@pytest.mark.slow
@pytest.mark.parametrize("who", ["rank", "launcher", "all"])
def test_kill_9_then_resume(place: Place, trained: Place, who: str) -> None:
    front = start(place, "--checkpoint-every", "5")
    wait_for_steps(place, front, 8)
    kill(front, who)
    again = start(place, "--checkpoint-every", "5", "--resume")
    assert again.wait(120) == 0
    assert again.stderr is not None
    assert "resuming at step " in again.stderr.read()
    assert_same_run(place, trained)


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(10))
def test_kill_9_at_a_random_moment(place: Place, trained: Place, attempt: int) -> None:
    """A rank, the launcher, the front or all, at any moment, setting up and saving included."""
    chance = random.Random(attempt)
    front = start(place, "--checkpoint-every", "2")
    if chance.random() < 0.3:
        time.sleep(chance.uniform(0, 8))
    else:
        wait_for_steps(place, front, chance.randrange(1, 60))
        time.sleep(chance.uniform(0, 0.2))
    family = psutil.Process(front.pid).children(recursive=True)
    who = ("rank", "launcher", "front", "all")[attempt % 4]
    for victim in victims(front, who) or [psutil.Process(front.pid)]:  # there may be no rank yet
        victim.kill()
    front.wait(60)
    assert not psutil.wait_procs(family, timeout=10)[1]
    assert start(place, "--checkpoint-every", "2", "--resume").wait(120) == 0
    assert_same_run(place, trained)


@pytest.mark.slow
def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk; the optimizer's file exceeds it later on."""
    place = Place(tmp_path)
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from stages.train import checkpoints, worker\n"
        "publish = checkpoints.Checkpoints._publish\n"
        "def then_full(self, *rest):\n"
        "    publish(self, *rest)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "checkpoints.Checkpoints._publish = then_full\n"
        "from stages.workers import run_worker; run_worker(worker.main)\n"
    )
    (tmp_path / "full_disk_worker.py").write_text(code)
    driver = (
        "import sys; from stages.launch import launch; from stages.train import running, train\n"
        "running.launch = lambda module, *a, **k: launch('full_disk_worker', *a, **k)\n"
        "train(*sys.argv[1:], checkpoint_every=3)\n"
    )
    paths = [place.plan, place.model, place.folder / "run"]
    done = subprocess.run(
        [sys.executable, "-c", driver, *map(str, paths)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
    )
    last = done.stderr.strip().splitlines()[-1] if done.stderr else ""
    assert done.returncode == 1
    assert "ArtifactError: cannot write the checkpoint of step 6: " in done.stderr, last
    (only,) = checkpoints.found(place.folder / "run.partial")
    assert checkpoints.read_state(only).step == 3
    assert not (only.parent / ".building").exists()


def test_resume_and_force_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="resume goes on with a run, force begins it again"):
        Place(tmp_path).train(resume=True, force=True)


def test_a_checkpoint_says_where_it_stands_in_plain_json(trained: Place) -> None:
    path = trained.folder / "run" / "checkpoints" / "step-00000050" / "checkpoint.json"
    raw = json.loads(path.read_text())
    assert set(raw) == {
        *("step", "totals", "metrics_bytes", "train_seconds", "resumed", "evaluations")
    }
    assert raw["totals"]["steps"] == 50
