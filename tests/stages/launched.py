"""A worker for the launcher's tests; ``mode`` in its work folder says how it behaves.

It imports nothing heavy, so that a launch costs what DeepSpeed's launcher costs.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from formats.errors import NotFiniteError
from stages.workers import run_worker, world


def body(folder: Path) -> None:
    """Says who it is, then does what ``mode`` tells rank 1 to do; the others wait."""
    here = world()
    (folder / f"pid-{here.rank}").write_text(str(os.getpid()))
    mode = (folder / "mode").read_text()
    print(f"rank {here.rank} of {here.size}, {os.environ['OMP_NUM_THREADS']} threads")
    if mode == "done":
        return
    if mode == "save":
        signal.signal(signal.SIGTERM, lambda *_: _save(folder))
    elif here.rank == 1:
        _fail(mode)
    time.sleep(120)


def _fail(mode: str) -> None:
    if mode == "error":
        raise NotFiniteError("step 3: the loss is not finite", fix="lower the rate", step=3)
    if mode == "crash":
        raise KeyError("nobody expected this")
    if mode == "exit":
        sys.exit(7)
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


def _save(folder: Path) -> None:
    (folder / f"saved-{world().rank}").touch()
    sys.exit(143)


if __name__ == "__main__":
    run_worker(body)
