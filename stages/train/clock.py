"""Where the seconds of a training loop go."""

from __future__ import annotations

import time
from typing import Any

SECTIONS = ("data", "forward", "wait", "backward", "optimizer")


class Clock:
    """Sums seconds per section; on a GPU with events, so that measuring does not stop the device.

    A section ends where the next begins: call ``mark(section)`` when its work has been issued.
    """

    def __init__(self, device: str) -> None:
        self.seconds = dict.fromkeys(SECTIONS, 0.0)
        self._cuda = device.startswith("cuda")
        self._marks: list[tuple[str, Any]] = []
        self.mark("start")

    def mark(self, section: str) -> None:
        """The section's work ends here."""
        self._marks.append((section, self._now()))

    def restart(self) -> None:
        """What happened since the last mark belongs to no section."""
        self._marks = []
        self.mark("start")

    def collect(self) -> dict[str, float]:
        """Adds up what was marked since the last call; gives this round's seconds."""
        if self._cuda:
            self._marks[-1][1].synchronize()
        round_ = dict.fromkeys(SECTIONS, 0.0)
        for (_, before), (section, after) in zip(self._marks, self._marks[1:], strict=False):
            round_[section] += before.elapsed_time(after) / 1000 if self._cuda else after - before
        for section, seconds in round_.items():
            self.seconds[section] += seconds
        self._marks = [self._marks[-1]]
        return round_

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
