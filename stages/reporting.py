"""How stages speak while they work: messages, warnings and progress, always on stderr.

A stage takes a ``Reporter`` and never prints. ``Silent`` is for library callers; ``Console`` is what the
command line and the workers use: a live bar on a terminal, a plain line every few seconds elsewhere.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Protocol

Advance = Callable[..., None]  # advance(amount, note="loss 1.23")


class Reporter(Protocol):
    """What a stage needs to be heard."""

    def message(self, text: str) -> None:
        """One line worth knowing."""

    def warn(self, text: str) -> None:
        """One line worth worrying about."""

    def progress(
        self, title: str, total: float, unit: str = "rows"
    ) -> contextlib.AbstractContextManager[Advance]:
        """A progress display; the value is called with the amount done since the last call."""


class Silent:
    """Says nothing; the default of library calls."""

    def message(self, text: str) -> None:
        pass

    def warn(self, text: str) -> None:
        pass

    @contextlib.contextmanager
    def progress(self, title: str, total: float, unit: str = "rows") -> Iterator[Advance]:
        yield lambda amount, note="": None


class Console:
    """Speaks on stderr: rich and live on a terminal, plain lines elsewhere.

    Args:
        quiet: drop messages and progress; warnings stay.
        every: seconds between two plain progress lines.
    """

    def __init__(self, *, quiet: bool = False, every: float = 5.0) -> None:
        self.quiet = quiet
        self.every = every

    def message(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        print(f"warning: {text}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def progress(self, title: str, total: float, unit: str = "rows") -> Iterator[Advance]:
        if self.quiet:
            with Silent().progress(title, total, unit) as advance:
                yield advance
        elif sys.stderr.isatty():
            with self._live(title, total, unit) as advance:
                yield advance
        else:
            with self._lines(title, total, unit) as advance:
                yield advance

    @contextlib.contextmanager
    def _lines(self, title: str, total: float, unit: str) -> Iterator[Advance]:
        start = last = time.monotonic()
        done = 0.0

        def advance(amount: float, note: str = "") -> None:
            nonlocal done, last
            done += amount
            now = time.monotonic()
            if now - last < self.every:
                return
            last = now
            rate = done / (now - start)
            left = duration((total - done) / rate) if rate and total else "?"
            parts = [f"{done:,.0f} of {total:,.0f} {unit}", f"{rate:,.1f} {unit}/s", f"{left} left"]
            self.message(f"{title}: " + ", ".join([*parts, note] if note else parts))

        yield advance

    @contextlib.contextmanager
    def _live(self, title: str, total: float, unit: str) -> Iterator[Advance]:
        from rich.console import Console as RichConsole
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=RichConsole(stderr=True),
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
        )
        with bar:
            task = bar.add_task(title, total=total, note="")

            def advance(amount: float, note: str = "") -> None:
                if note:
                    bar.update(task, note=note)
                bar.advance(task, amount)

            yield advance


def duration(seconds: float) -> str:
    """Seconds as a person says them: ``41 s``, ``3 min 20 s``, ``2 h 05 min``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
