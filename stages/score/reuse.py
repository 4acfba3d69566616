"""Signatures computed before: rows of equal content in the same space are copied, never computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from formats.errors import ArtifactError
from formats.signatures import DUPLICATE, Signatures, as_keys

COLUMNS = ("signature", "norm", "loss", "prompt_tokens", "response_tokens", "status")


@dataclass(frozen=True)
class Known:
    """Where the signature of each id stands, over several artifacts.

    Attributes:
        artifacts: the sources.
        ids: (n,) V16, sorted.
        source: (n,) which artifact.
        row: (n,) which row there.
    """

    artifacts: list[Signatures]
    ids: np.ndarray
    source: np.ndarray
    row: np.ndarray

    @classmethod
    def of(cls, artifacts: Sequence[Signatures]) -> Known:
        """Looks up all rows that have a result of their own; the first artifact wins."""
        ids, source, row = [np.empty(0, "V16")], [np.empty(0, int)], [np.empty(0, int)]
        for number, artifact in enumerate(artifacts):
            own = np.flatnonzero(artifact.column("status") != DUPLICATE)
            ids.append(as_keys(artifact.column("example_id"))[own])
            source.append(np.full(len(own), number))
            row.append(own)
        everything = np.concatenate(ids)
        unique, first = np.unique(everything, return_index=True)
        return cls(
            list(artifacts), unique, np.concatenate(source)[first], np.concatenate(row)[first]
        )

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Places of (n, 16) ids in this table, -1 where unknown: (n,) int64."""
        keys = as_keys(ids)
        if not len(self.ids):
            return np.full(len(keys), -1)
        place = np.minimum(np.searchsorted(self.ids, keys), len(self.ids) - 1)
        return np.where(self.ids[place] == keys, place, -1)

    def read(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """The stored columns of known rows, bit for bit, in the order of ``places``."""
        columns: dict[str, np.ndarray] = {}
        for number, artifact in enumerate(self.artifacts):
            here = np.flatnonzero(self.source[places] == number)
            if not len(here):
                continue
            rows = self.row[places[here]]
            order = np.argsort(rows)
            for name in COLUMNS:
                stored = artifact.group[name]
                values = np.asarray(stored.oindex[rows[order]])
                shape = (len(places), *stored.shape[1:])
                column = columns.setdefault(name, np.zeros(shape, stored.dtype))
                column[here[order]] = values
        return columns


def open_known(output: Path, others: Sequence[Path], space: dict[str, object]) -> Known:
    """What can be copied: the output's own last version, and ``--reuse`` artifacts.

    Raises:
        ArtifactError: a ``--reuse`` artifact is of another signature space; the message names the
            first field that differs.
    """
    usable = []
    for path in others:
        artifact = Signatures.open(path)
        for name, value in space.items():
            got = artifact.space.get(name)
            if got != value:
                raise ArtifactError(
                    f"--reuse {path}: {name} is {got!r} there, {value!r} here",
                    fix="score with the same settings, or drop --reuse",
                )
        usable.append(artifact)
    try:
        last = Signatures.open(output)
    except ArtifactError:
        return Known.of(usable)
    return Known.of([*usable, last] if last.space == space else usable)
