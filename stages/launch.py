"""Starts the ranks of a worker module through DeepSpeed's own launcher, and outlives none of them.

    front process -> DeepSpeed launcher -> one worker per rank

Each of the three asks the kernel to be killed with its parent, so that ``kill -9`` of any leaves nothing
behind. A worker module is started as ``python -m MODULE FOLDER`` and ends in ``workers.run_worker``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from formats import errors
from formats.errors import ClusterCliError, SettingError, WorkerError
from stages.workers import ERROR_FILE, LAUNCHER_VARIABLE, die_with_parent, share_of_cores

# DeepSpeed's two launchers: of the ranks on a machine, and of the former on several machines.
_LOCAL, _REMOTE = "deepspeed.launcher.launch", "deepspeed.launcher.runner"
_ROOT = Path(__file__).resolve().parents[1]


def launch(
    module: str,
    folder: Path,
    *,
    ranks: int,
    hostfile: Path | None = None,
    grace: float = 5.0,
) -> None:
    """Runs ``python -m module folder`` on every rank and waits for all.

    When this process is interrupted (``KeyboardInterrupt``, ``SystemExit`` from a signal handler), the
    workers get SIGTERM and ``grace`` seconds, then they are killed; the interruption goes on.

    Args:
        module: importable on every machine; it calls ``workers.run_worker``.
        folder: the work folder, visible to all ranks; a failing rank leaves its error there.
        ranks: number of processes, over all machines.
        hostfile: machines as ``name slots=N`` lines; without it, this machine.
        grace: seconds between asking the workers to stop and killing them.

    Raises:
        SettingError: the hostfile's slots or this machine's GPUs do not fit ``ranks``.
        ClusterCliError: what a worker raised, as the same class with the same text and data.
        WorkerError: a worker failed otherwise; ``data`` has ``exit_code``, and ``rank`` if known.
    """
    left = folder / ERROR_FILE
    left.unlink(missing_ok=True)
    hosts = read_hostfile(hostfile) if hostfile else {}
    remote = not hosts.keys() <= {"localhost", "127.0.0.1", socket.gethostname()}
    if hostfile:
        _check_slots(hostfile, sum(hosts.values()), ranks)
    command = _many_machines(hostfile) if hostfile and remote else _one_machine(ranks)
    process = subprocess.Popen(
        [sys.executable, "-m", "stages.launch", str(os.getpid()), *command, module, str(folder)],
        env=_environment(1 if remote else ranks),
        stdin=subprocess.DEVNULL,
        stdout=2,  # stdout is for data; whatever a library prints there is a message
        start_new_session=True,  # a terminal's Ctrl-C reaches this process alone
    )
    try:
        code = process.wait()
    except BaseException:
        _stop(process, grace, remote=remote)
        raise
    if code:
        raise _failure(code, left)


def free_port() -> int:
    """A TCP port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read_hostfile(path: Path) -> dict[str, int]:
    """Slots of each machine of a DeepSpeed hostfile.

    Raises:
        SettingError: it cannot be read, a line is not ``name slots=N``, a name comes twice, or there is
            no machine in it.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise SettingError(f"cannot read the hostfile {path}: {error.strerror}") from error
    slots: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        text = line.split("#")[0].strip()
        match = re.fullmatch(r"(\S+)\s+slots=([1-9]\d*)", text)
        if not text:
            continue
        if not match or match[1] in slots:
            problem = "names a machine twice" if match else "is not of the form NAME slots=N"
            raise SettingError(f"{path}:{number}: {text!r} {problem}", fix="correct the hostfile")
        slots[match[1]] = int(match[2])
    if not slots:
        raise SettingError(f"{path} names no machine", fix="write lines such as `node1 slots=8`")
    return slots


def _one_machine(ranks: int) -> list[str]:
    devices = _devices(ranks)
    layout = base64.urlsafe_b64encode(json.dumps({"localhost": devices}).encode()).decode()
    return [
        _LOCAL,
        f"--world_info={layout}",
        "--master_addr=127.0.0.1",
        f"--master_port={free_port()}",
        "--no_local_rank",
        "--log_level=critical",
        "--module",
    ]


def _check_slots(hostfile: Path, slots: int, ranks: int) -> None:
    if slots != ranks:
        raise SettingError(
            f"{hostfile} has {slots} slots, but {ranks} ranks are to run",
            fix=f"make its slots add up to {ranks}, or use `--ranks {slots}`",
        )


def _many_machines(hostfile: Path) -> list[str]:
    return [
        _REMOTE,
        f"--hostfile={hostfile}",
        "--force_multi",
        f"--master_port={free_port()}",
        "--no_local_rank",
        "--log_level=critical",
        "--module",
    ]


def _devices(ranks: int) -> list[int | str]:
    """The GPUs of the ranks, or plain numbers on the CPU."""
    if use_cpu():
        return list(range(ranks))
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    devices: list[int | str] = [*visible.split(",")] if visible else []
    devices = devices or list(range(torch.cuda.device_count()))
    if ranks > len(devices):
        raise SettingError(
            f"{ranks} ranks need {ranks} GPUs, this machine shows {len(devices)}",
            fix="use fewer ranks, name more machines with --hostfile, or set DS_ACCELERATOR=cpu",
        )
    return devices[:ranks]


def use_cpu() -> bool:
    """True when there is no GPU, or DS_ACCELERATOR=cpu says to leave it alone."""
    if os.environ.get("DS_ACCELERATOR"):
        return os.environ["DS_ACCELERATOR"] == "cpu"
    import torch

    return not torch.cuda.is_available()


def _environment(ranks_here: int) -> dict[str, str]:
    search = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        **({"DS_ACCELERATOR": "cpu"} if use_cpu() else {}),
        "OMP_NUM_THREADS": share_of_cores(ranks_here),
        "PYTHONPATH": os.pathsep.join(search),
        "TOKENIZERS_PARALLELISM": "false",  # the tokenizer's threads and forks do not go together
    }


def _stop(process: subprocess.Popen[bytes], grace: float, *, remote: bool) -> None:
    """Workers first, so that they can save their state; then, whatever happens, everything."""
    import psutil

    family: list[Any] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    try:
        for member in [process] if remote else family:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                member.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    finally:
        process.kill()  # the kernel then kills the workers
        process.wait()
        with contextlib.suppress(psutil.Error):
            psutil.wait_procs(family, timeout=5)


def _failure(code: int, left: Path) -> ClusterCliError:
    """The error to raise for the launcher's exit code and what a worker left behind."""
    if code < 0:
        return WorkerError(f"the launcher was killed by signal {-code}", exit_code=128 - code)
    if code > 192:  # a negative status, as the launcher hands it on
        number = 256 - code
        hint = "the machine may have run out of memory" if number == signal.SIGKILL else ""
        return WorkerError(
            f"a worker was killed by signal {number}", fix=hint, exit_code=128 + number
        )
    try:
        facts = json.loads(left.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return WorkerError(f"a worker ended with exit code {code}", exit_code=code)
    error = _rebuild(facts, code)
    error.add_note(f"On rank {facts['rank']}:\n{facts['traceback']}")
    return error


def _rebuild(facts: dict[str, Any], code: int) -> ClusterCliError:
    kind = getattr(errors, facts["class"], None)
    if isinstance(kind, type) and issubclass(kind, ClusterCliError):
        return kind(facts["problem"], fix=facts["fix"], **facts["data"])
    return WorkerError(
        f"rank {facts['rank']} failed: {facts['class']}: {facts['problem']}",
        fix="--debug shows where",
        exit_code=code,
        rank=facts["rank"],
    )


def _become_launcher() -> None:
    """``python -m stages.launch PARENT MODULE ...`` turns into DeepSpeed's launcher, quietly."""
    import logging
    import runpy

    parent, module = int(sys.argv[1]), sys.argv[2]
    if module == _LOCAL:
        die_with_parent(parent)
        os.environ[LAUNCHER_VARIABLE] = str(os.getpid())
    else:  # on SIGTERM it stops the launchers on the other machines
        die_with_parent(parent, signal.SIGTERM)
    logging.disable(logging.WARNING)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _become_launcher()
