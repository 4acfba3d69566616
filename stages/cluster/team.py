"""The ranks that make one map together, or the one process that makes it alone.

Everything that crosses ranks does so here, through ``torch.distributed`` with gloo: signatures lie on disk
and in main memory, so there is nothing for a GPU to exchange.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np

from stages import workers

T = TypeVar("T")
_PATIENCE = timedelta(days=2)  # rank 0 fits the sample alone, however long that takes


@dataclass(frozen=True)
class Team:
    """One rank of ``size``; the default is alone and imports nothing."""

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls) -> Team:
        """Connects the ranks that torchrun, DeepSpeed's launcher or srun started."""
        import torch.distributed as dist

        place = workers.export_world()
        if not dist.is_initialized():
            dist.init_process_group("gloo", timeout=_PATIENCE)
        return cls(place.rank, place.size)

    def owns(self, block: int) -> bool:
        """Whether this rank reads the block."""
        return block % self.size == self.rank

    def first(self, make: Callable[[], T]) -> T:
        """What rank 0 makes of it, on every rank."""
        if self.size == 1:
            return make()
        import torch.distributed as dist

        box: list[Any] = [make() if self.rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def total(self, part: np.ndarray) -> np.ndarray:
        """The sum of all ranks' arrays, on every rank; an array of one shape and type on each."""
        if self.size == 1:
            return part
        import torch
        import torch.distributed as dist

        whole = torch.from_numpy(part)
        dist.all_reduce(whole)
        return whole.numpy()

    def collect(self, part_BD: np.ndarray, counts: list[int]) -> list[np.ndarray]:
        """Every rank's rows, on rank 0; nothing on the others. ``counts`` has the rows of each rank."""
        if self.size == 1:
            return [part_BD]
        import torch
        import torch.distributed as dist

        if self.rank:
            if len(part_BD):
                dist.send(torch.from_numpy(part_BD), dst=0)
            return []
        parts = [part_BD]
        for rank, count in enumerate(counts[1:], 1):
            parts.append(np.empty((count, part_BD.shape[1]), dtype=part_BD.dtype))
            if count:
                dist.recv(torch.from_numpy(parts[-1]), src=rank)
        return parts
