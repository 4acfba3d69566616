"""Seconds that killed runs have put into a half-done artifact: what scoring cost includes them."""

from __future__ import annotations

import json
import time
from pathlib import Path

from formats import artifacts


def place(output: Path) -> Path:
    """The note beside the blocks; gone when the artifact is complete."""
    return artifacts.partial(output) / "seconds.partial"


def earlier(output: Path) -> float:
    """Seconds noted by runs before this one; 0 when there were none."""
    try:
        return float(json.loads(place(output).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return 0.0


class Stopwatch:
    """Notes the seconds of this run behind those of earlier ones, after every block.

    Args:
        output: the artifact being made.
    """

    def __init__(self, output: Path) -> None:
        self.output, self.start = output, time.monotonic()
        self.earlier = earlier(output)

    def note(self) -> None:
        """A kill -9 from here on costs at most the seconds of one block."""
        artifacts.write_json(place(self.output), self.earlier + time.monotonic() - self.start)
