"""Bad rows: collected, then reported all at once (``fail``) or written down (``skip``)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO

from formats.data.rows import shortened
from formats.errors import BadRowsError, DataError

SHOWN = 10
EMPTY = "holds no rows"  # of a source, where a row's fault would stand


class BadRows:
    """The rows of one reading that cannot be used.

    ``finish`` raises or publishes; leaving the context without it removes what was written.
    """

    def __init__(self, on_bad_row: str, to: Path | None) -> None:
        self.total = 0
        self._fail = on_bad_row == "fail"
        self._first: list[tuple[str, int, str]] = []
        self._alike = True  # every reason so far is the first one
        self._to = to if not self._fail else None
        self._part = to.with_name(to.name + ".part") if to and not self._fail else None
        self._file: IO[str] | None = None

    def __enter__(self) -> BadRows:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        if self._part is not None:
            self._part.unlink(missing_ok=True)

    def add(self, path: str, line: int, reason: str, data: bytes) -> None:
        """One more."""
        self.total += 1
        self._alike = self._alike and reason == (self._first[0][2] if self._first else reason)
        if len(self._first) < SHOWN:
            self._first.append((path, line, reason))
        if self._part is not None:
            if self._file is None:
                self._file = self._part.open("w", encoding="utf-8")
            record = {"file": path, "line": line, "reason": reason, "text": shortened(data)}
            self._file.write(json.dumps(record, ensure_ascii=True) + "\n")

    def finish(self, usable: int) -> None:
        """The whole dataset is read, with so many usable rows.

        Raises:
            BadRowsError: there are bad rows and they are not to be skipped.
            DataError: no row is usable.
        """
        self._publish()
        if self._fail and self.total:
            raise BadRowsError(self._message(usable), rows=self._first, total=self.total)
        if not usable:
            first = f"; the first: {self._line(0)}" if self._first else ""
            raise DataError(f"no usable row in the data, {self.total} rejected{first}")

    def _publish(self) -> None:
        if self._to is None or self._part is None:
            return
        if self._file is None:
            self._to.unlink(missing_ok=True)  # an older run's rejects are not this run's
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        os.replace(self._part, self._to)

    def _message(self, usable: int) -> str:
        if not usable and self._alike and (self.total > 1 or self._first[0][2] == EMPTY):
            return self._hopeless()
        lines = [f"\n  {self._line(number)}" for number in range(len(self._first))]
        more = f"\n  ... and {self.total - len(lines)} more" if self.total > len(lines) else ""
        return (
            f"{self.total} of {self.total + usable} rows cannot be used; repair them, or leave "
            f"them out with --on-bad-row skip:{''.join(lines)}{more}"
        )

    def _hopeless(self) -> str:
        """Every row has one and the same fault: it is said once, and skipping rows is no advice."""
        path, line, reason = self._first[0]
        if reason == EMPTY:
            return f"{path} {EMPTY}"
        return f"none of the {self.total:,} rows can be used; {path}:{line}, like all: {reason}"

    def _line(self, number: int) -> str:
        path, line, reason = self._first[number]
        return f"{path}:{line}: {reason}"
