"""Checkpoints: everything a run needs to go on at the exact step, complete or absent.

``checkpoints/step-00000012/`` holds DeepSpeed's own files (weights, optimizer), one file per rank with its
random state, and ``checkpoint.json``. It is built under another name and renamed when it is whole.
DeepSpeed's files are pickles: resume only runs that you started.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.errors import ArtifactError
from stages.workers import world

FOLDER, STATE = "checkpoints", "checkpoint.json"
_BUILDING, _TAG = ".building", "deepspeed"


@dataclass
class State:
    """Where a run stands between two steps, equal on all ranks.

    Attributes:
        step: the next one to take.
        totals: sums so far (``loop.Totals``).
        metrics_bytes: length of ``metrics.jsonl`` so far.
        train_seconds: spent in steps so far.
        resumed: how often the run was resumed.
        evaluations: results so far.
    """

    step: int = 0
    totals: dict[str, Any] = field(default_factory=dict)
    metrics_bytes: int = 0
    train_seconds: float = 0.0
    resumed: int = 0
    evaluations: list[dict[str, Any]] = field(default_factory=list)


def found(run: Path) -> list[Path]:
    """The complete checkpoints of a run folder, oldest first."""
    return sorted(path.parent for path in (run / FOLDER).glob(f"step-*/{STATE}"))


def step_of(checkpoint: Path) -> int:
    """The step a checkpoint goes on with."""
    return int(checkpoint.name.removeprefix("step-"))


@dataclass
class Checkpoints:
    """Writes a run's checkpoints, and knows when.

    Attributes:
        run: the run folder being built.
        every: steps between two of them, if any number of steps.
        minutes: minutes between two of them, if any number of minutes.
        keep: how many of the newest stay.
        stopping: set when this rank was asked to stop (SIGTERM); a checkpoint is then written.
    """

    run: Path
    every: int | None
    minutes: float | None
    keep: int
    stopping: bool = False
    _last: float = field(default_factory=time.monotonic)

    def wish(self) -> bool:
        """Whether this rank's clock says that it is time."""
        return self.minutes is not None and time.monotonic() - self._last >= 60 * self.minutes

    def due(self, step: int) -> bool:
        """Whether the number of steps says so."""
        return self.every is not None and step % self.every == 0

    def save(self, engine: Any, state: State, seconds: dict[str, float]) -> Path:
        """Writes one; all ranks call it.

        Raises:
            ArtifactError: it cannot be written; the ones before stand.
        """
        import torch.distributed as dist

        building = self.run / FOLDER / _BUILDING
        if world().rank == 0:
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir(parents=True)
        dist.barrier()
        try:
            _write(engine, building, seconds)
        except (OSError, RuntimeError) as error:
            shutil.rmtree(building, ignore_errors=True)
            raise ArtifactError(
                f"cannot write the checkpoint of step {state.step}: {' '.join(str(error).split())}",
                fix="free some space, then go on from the one before with --resume",
            ) from error
        dist.barrier()
        name = building.with_name(f"step-{state.step:08d}")
        if world().rank == 0:
            self._publish(building, name, state)
        dist.barrier()
        self._last = time.monotonic()
        return name

    def _publish(self, building: Path, name: Path, state: State) -> None:
        for path in building.rglob("*"):
            if path.is_file():
                _sync(path)
        artifacts.write_json(building / STATE, asdict(state))
        shutil.rmtree(name, ignore_errors=True)
        os.rename(building, name)
        artifacts.sync_folder(name.parent)
        for old in found(self.run)[: -self.keep]:
            shutil.rmtree(old)


def read_state(checkpoint: Path) -> State:
    """Where the checkpoint's run stood."""
    return State(**json.loads((checkpoint / STATE).read_text(encoding="utf-8")))


def restore(engine: Any, checkpoint: Path) -> dict[str, float]:
    """Puts weights, optimizer and random state back; gives this rank's seconds per section.

    Raises:
        ArtifactError: DeepSpeed cannot read it.
    """
    import torch

    path, _ = engine.load_checkpoint(
        str(checkpoint), tag=_TAG, load_module_strict=not _has_frozen(engine)
    )
    if path is None:
        raise ArtifactError(f"{checkpoint} cannot be read", fix="begin again with --force")
    own = torch.load(checkpoint / _own_file(), weights_only=True)
    version, numbers, gauss = own["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(own["torch"])
    if own["cuda"] is not None:
        torch.cuda.set_rng_state(own["cuda"])
    seconds: dict[str, float] = own["seconds"]
    return seconds


def _write(engine: Any, building: Path, seconds: dict[str, float]) -> None:
    import torch

    frozen = _has_frozen(engine)
    engine.save_checkpoint(
        str(building), tag=_TAG, save_latest=False, exclude_frozen_parameters=frozen
    )
    version, numbers, gauss = random.getstate()
    on_gpu = engine.device.type == "cuda"
    own = {
        "python": [version, list(numbers), gauss],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if on_gpu else None,
        "seconds": seconds,
    }
    torch.save(own, building / _own_file())


def _has_frozen(engine: Any) -> bool:
    return not all(weight.requires_grad for weight in engine.module.parameters())


def _own_file() -> str:
    return f"rank-{world().rank:05d}.pt"


def _sync(path: Path) -> None:
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
