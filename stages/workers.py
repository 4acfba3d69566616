"""The worker's side of a launch: who it is, how it dies, how it tells why it failed.

A worker module takes one argument, a work folder, which all ranks can see. There it finds its settings and
there the first rank that fails leaves the reason, so that the launching process can raise the very same
error. Ranks may also be started by torchrun, SLURM or DeepSpeed itself; ``world`` reads all of them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from formats.errors import ClusterCliError

ERROR_FILE = "error.json"
LAUNCHER_VARIABLE = "CLUSTER_CLI_LAUNCHER_PID"

# When a rank is killed, the others fail within milliseconds on their broken connection to it. They keep
# that to themselves for as long as the launcher needs to notice the dead one (it looks once a second).
_PATIENCE_SECONDS = 2.5


@dataclass(frozen=True)
class World:
    """This process's place among all ranks."""

    rank: int
    size: int
    local_rank: int


def inside_launch(environment: Mapping[str, str] = os.environ) -> bool:
    """True in a process that torchrun, DeepSpeed or srun started as one of several ranks.

    SLURM describes the whole job in the batch script too, where nothing has been launched yet; only
    ``SLURM_STEP_NUM_TASKS`` tells the tasks of an ``srun`` step apart from it.
    """
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return True
    return "SLURM_PROCID" in environment and int(environment.get("SLURM_STEP_NUM_TASKS", "1")) > 1


def world(environment: Mapping[str, str] = os.environ) -> World:
    """This process's rank, or the only one there is outside a launch."""
    if not inside_launch(environment):
        return World(0, 1, 0)
    if "RANK" in environment:
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        return World(rank, size, int(environment.get("LOCAL_RANK", "0")))
    return World(
        int(environment["SLURM_PROCID"]),
        int(environment["SLURM_STEP_NUM_TASKS"]),
        int(environment.get("SLURM_LOCALID", "0")),
    )


def export_world() -> World:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT where SLURM alone started us."""
    here = world()
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(here.rank), str(here.size)
    os.environ["LOCAL_RANK"] = str(here.local_rank)
    first = first_host(os.environ.get("SLURM_STEP_NODELIST", "127.0.0.1"))
    os.environ.setdefault("MASTER_ADDR", first)
    job = int(os.environ.get("SLURM_JOB_ID", os.getpid()))
    os.environ.setdefault("MASTER_PORT", str(20_000 + job % 20_000))
    return here


def first_host(nodes: str) -> str:
    """The first host of a SLURM node list: ``node[03-07,9],other`` gives ``node03``."""
    head, bracket, rest = nodes.partition("[")
    if not bracket or "," in head:
        return head.split(",")[0]
    return head + rest.split("]")[0].split(",")[0].split("-")[0]


def share_of_cores(ranks_here: int) -> str:
    """OMP_NUM_THREADS for one of the ranks of this machine: as set, else its share of the cores."""
    cores = len(os.sched_getaffinity(0))
    return os.environ.get("OMP_NUM_THREADS") or str(max(1, cores // max(1, ranks_here)))


def die_with_parent(parent: int | None = None, how: signal.Signals = signal.SIGKILL) -> None:
    """Asks the kernel to end this process when its parent is gone, however that came about.

    Args:
        parent: the parent's process id; when it is gone already, this process ends at once.
        how: the signal to get; another than SIGKILL leaves the chance to clean up elsewhere.
    """
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(how))
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def run_worker(body: Callable[[Path], None]) -> NoReturn:
    """Runs a worker's body with its work folder, and ends the process.

    An error of the project is left for the launching process word by word, any other as its type and
    text; the first rank's stands. Ctrl-C is the launching process's business.
    """
    launcher = os.environ.get(LAUNCHER_VARIABLE)
    die_with_parent(int(launcher) if launcher else None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = share_of_cores(int(os.environ.get("LOCAL_SIZE", "1")))
    folder = Path(sys.argv[1])
    threading.Thread(target=_follow, args=(folder,), daemon=True).start()
    try:
        body(folder)
    except SystemExit as ending:
        _leave(ending.code if isinstance(ending.code, int) else 1)
    except ClusterCliError as error:
        leave_error(folder, error)
        _leave(error.exit_code)
    except BaseException as error:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(_PATIENCE_SECONDS)
        leave_error(folder, error)
        _leave(1)
    _leave(0)


def _follow(folder: Path) -> None:
    """Ends this process some time after another rank failed.

    A launcher does that for the ranks of its own machine; those of other machines would wait in a
    collective until it times out.
    """
    while not (folder / ERROR_FILE).exists():
        time.sleep(_PATIENCE_SECONDS)
    time.sleep(2 * _PATIENCE_SECONDS)
    os._exit(1)


def leave_error(folder: Path, error: BaseException) -> None:
    """Writes ``error.json`` unless another rank was first."""
    here = world()
    facts: dict[str, Any] = {
        "rank": here.rank,
        "class": type(error).__name__,
        "traceback": "".join(traceback.format_exception(error)),
    }
    if isinstance(error, ClusterCliError):
        facts |= {"problem": error.problem, "fix": error.fix, "data": error.data}
    else:
        facts["problem"] = " ".join(str(error).split())[:500]
    mine = folder / f".{ERROR_FILE}.{here.rank}"
    try:
        mine.write_text(json.dumps(facts, default=str), encoding="utf-8")
        os.link(mine, folder / ERROR_FILE)
    except FileExistsError:
        pass
    except OSError as problem:  # nowhere to leave it: say it here
        print(f"error: rank {here.rank}: {error} ({problem})", file=sys.stderr, flush=True)
    finally:
        mine.unlink(missing_ok=True)


def _leave(code: int) -> NoReturn:
    # Not sys.exit: threads of a communication library may wait for ranks that are gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
