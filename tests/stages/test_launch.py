"""Launching real processes through DeepSpeed's launcher, and killing them in every way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from formats.errors import NotFiniteError, SettingError, WorkerError
from stages.launch import launch, read_hostfile

WORKER = "tests.stages.launched"


def start(folder: Path, mode: str, ranks: int = 2) -> None:
    (folder / "mode").write_text(mode)
    launch(WORKER, folder, ranks=ranks)


def test_every_rank_runs_and_nothing_goes_to_stdout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    start(tmp_path, "done", ranks=3)
    out, err = capfd.readouterr()
    assert out == ""
    assert sorted(err.split("\n")) == ["", *(f"rank {r} of 3, 3 threads" for r in range(3))]


def test_the_error_of_a_rank_is_raised_word_by_word(tmp_path: Path) -> None:
    with pytest.raises(NotFiniteError) as caught:
        start(tmp_path, "error")
    assert str(caught.value) == "step 3: the loss is not finite; lower the rate"
    assert caught.value.data == {"step": 3}
    assert "On rank 1:" in caught.value.__notes__[0]
    assert all_gone(tmp_path)


def test_an_unforeseen_exception_names_rank_type_and_text(tmp_path: Path) -> None:
    with pytest.raises(WorkerError) as caught:
        start(tmp_path, "crash")
    text = "rank 1 failed: KeyError: 'nobody expected this'; --debug shows where"
    assert str(caught.value) == text
    assert caught.value.data == {"exit_code": 1, "rank": 1}
    assert "in _fail" in caught.value.__notes__[0]
    assert all_gone(tmp_path)


@pytest.mark.parametrize(
    ("mode", "text", "code"),
    [
        ("exit", "a worker ended with exit code 7", 7),
        (
            "killed",
            "a worker was killed by signal 9; the machine may have run out of memory",
            137,
        ),
    ],
)
def test_a_rank_that_just_ends(tmp_path: Path, mode: str, text: str, code: int) -> None:
    with pytest.raises(WorkerError) as caught:
        start(tmp_path, mode)
    assert str(caught.value) == text
    assert caught.value.data["exit_code"] == code
    assert all_gone(tmp_path)


@pytest.mark.parametrize("victim", ["front", "launcher"])
def test_kill_9_leaves_no_process_behind(tmp_path: Path, victim: str) -> None:
    front = start_front(tmp_path, "wait")
    family = workers(tmp_path)
    launcher = psutil.Process(family[0].ppid())
    (launcher if victim == "launcher" else front).kill()
    _, alive = psutil.wait_procs([launcher, *family], timeout=10)
    assert not alive
    assert front.wait(10) == (-signal.SIGKILL if victim == "front" else 1)
    if victim == "launcher":
        assert front.stderr is not None
        assert "WorkerError: the launcher was killed by signal 9" in front.stderr.read()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interrupted_front_lets_its_ranks_save(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    front = start_front(tmp_path, "save")
    family = workers(tmp_path)
    front.send_signal(number)
    assert front.wait(15) == code
    assert not psutil.wait_procs(family, timeout=1)[1]
    assert sorted(path.name for path in tmp_path.glob("saved-*")) == ["saved-0", "saved-1"]


FRONT = """
import signal, sys
from pathlib import Path
from stages.launch import launch
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup would have it ignored
try:
    launch(sys.argv[1], Path(sys.argv[2]), ranks=2, grace=10)
except KeyboardInterrupt:
    sys.exit(130)
"""


def start_front(folder: Path, mode: str) -> subprocess.Popen[str]:
    """A process that launches two ranks, which have started when this returns."""
    (folder / "mode").write_text(mode)
    root = Path(__file__).parents[2]
    front = subprocess.Popen(
        [sys.executable, "-c", FRONT, WORKER, str(folder)],
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    deadline = time.monotonic() + 60
    while len(started(folder)) < 2 and time.monotonic() < deadline and front.poll() is None:
        time.sleep(0.05)
    time.sleep(0.3)  # between writing its number and installing a signal handler
    return front


def started(folder: Path) -> list[int]:
    return [int(p.read_text() or 0) for p in folder.glob("pid-*") if p.read_text()]


def workers(folder: Path) -> list[psutil.Process]:
    family = [psutil.Process(pid) for pid in started(folder)]
    assert len(family) == 2
    return family


def all_gone(folder: Path) -> bool:
    return not any(psutil.pid_exists(pid) for pid in started(folder))


def test_hostfile(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# machines\nnode1 slots=4\n\nnode2  slots=8  # the big one\n")
    assert read_hostfile(path) == {"node1": 4, "node2": 8}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node1\n", "{}:1: 'node1' is not of the form NAME slots=N; correct the hostfile"),
        (
            "a slots=1\na slots=2\n",
            "{}:2: 'a slots=2' names a machine twice; correct the hostfile",
        ),
        ("a slots=0\n", "{}:1: 'a slots=0' is not of the form NAME slots=N; correct the hostfile"),
        ("# none\n", "{} names no machine; write lines such as `node1 slots=8`"),
    ],
)
def test_wrong_hostfiles(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(SettingError) as caught:
        read_hostfile(path)
    assert str(caught.value) == message.format(path)


# Stands in for the remote shell: runs each machine's command here, as pdsh would run it there.
PDSH = """#!{python}
import subprocess, sys
at = sys.argv.index("-w")
hosts, command = sys.argv[at + 1].split(","), " ".join(sys.argv[at + 2 :])
started = [
    subprocess.Popen(["sh", "-c", command.replace("%n", str(number))])
    for number, _ in enumerate(hosts)
]
sys.exit(max(process.wait() for process in started))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["done", "error"])
def test_two_machines_through_deepspeeds_runner(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "pdsh").write_text(PDSH.format(python=sys.executable))
    (tools / "ssh").write_text("#!/bin/sh\necho 127.0.0.1\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    hosts = tmp_path / "host file"  # with a space: the command is never split as a string
    hosts.write_text("node1 slots=1\nnode2 slots=1\n")
    folder = tmp_path / "work folder"
    folder.mkdir()
    (folder / "mode").write_text(mode)
    if mode == "error":
        with pytest.raises(NotFiniteError, match="step 3: the loss is not finite"):
            launch(WORKER, folder, ranks=2, hostfile=hosts)
    else:
        launch(WORKER, folder, ranks=2, hostfile=hosts)
        assert {"rank 0 of 2", "rank 1 of 2"} <= {
            line.split(",")[0] for line in capfd.readouterr().err.splitlines()
        }
    assert all_gone(folder)


def test_a_hostfile_of_this_machine_alone_needs_no_remote_shell(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hosts"
    path.write_text("localhost slots=2\n")
    (tmp_path / "mode").write_text("done")
    launch(WORKER, tmp_path, ranks=2, hostfile=path)
    assert "rank 1 of 2" in capfd.readouterr().err


def test_hostfile_with_other_slots_than_ranks(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("node1 slots=4\nnode2 slots=4\n")
    with pytest.raises(SettingError) as caught:
        launch(WORKER, tmp_path, ranks=4, hostfile=path)
    assert str(caught.value) == (
        f"{path} has 8 slots, but 4 ranks are to run; "
        "make its slots add up to 4, or use `--ranks 8`"
    )
