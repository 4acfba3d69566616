"""init: looks at a user's data, so that a pipeline file can be written for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from formats import artifacts
from formats.data import DataOptions, open_dataset
from formats.errors import SettingError

FIRST = 1000  # rows that are looked at


@dataclass(frozen=True)
class Found:
    """What the data look like.

    Attributes:
        shape: of the rows, as ``Dataset.shape``.
        rows: how many were read.
        more: there may be more than these.
        rejected: how many of them cannot be used, where those are to be skipped.
    """

    shape: str
    rows: int
    more: bool
    rejected: int


def detect(data: Sequence[str], options: DataOptions = DataOptions()) -> Found:
    """Reads the first rows.

    Raises:
        DataError, BadRowsError: they cannot be used; the message says what to add.
    """
    limit = min(FIRST, options.limit or FIRST)
    with open_dataset(data, dataclasses.replace(options, limit=limit)) as dataset:
        return Found(dataset.shape, len(dataset), len(dataset) == FIRST, dataset.rejected)


def write(path: Path, text: str, *, force: bool = False) -> None:
    """Writes the file, whole or not at all.

    Raises:
        SettingError: it exists, without ``force``.
        ArtifactError: it cannot be written.
    """
    if path.exists() and not force:
        raise SettingError(f"{path} exists", fix="name another with -o, or add --force")
    with artifacts.atomic_file(path) as stream:
        stream.write(text)
