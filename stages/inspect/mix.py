"""Which sources a cluster's rows come from: the values of one column of the data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from formats.clusters import Clusters
from formats.data import Dataset
from formats.errors import SettingError

# Columns that say where a row comes from, the first one that fits is taken.
NAMES = (
    *("source", "dataset", "dataset_name", "data_source", "origin", "subset", "category"),
    *("domain", "task", "topic"),
)
FILE = "file"  # what stands for the file's name, where several were read
_MOST = 100  # values; a column with more of them names rows, not sources
_LOOKED_AT = 100  # first rows whose columns are looked at


@dataclass(frozen=True)
class Mix:
    """Rows by cluster and value.

    Attributes:
        by: the column.
        values: (V) as text.
        rows: (K, V) int64.
    """

    by: str
    values: list[str]
    rows: np.ndarray

    def of(self, cluster: int) -> list[dict[str, Any]]:
        """``{"value", "rows", "share"}`` of every value in the cluster, the most frequent first."""
        count_V = self.rows[cluster]
        total = max(1, int(count_V.sum()))
        return [
            {
                "value": self.values[at],
                "rows": int(count_V[at]),
                "share": round(float(count_V[at] / total), 6),
            }
            for at in np.argsort(-count_V, kind="stable")
            if count_V[at]
        ]


def find_mix(source: Clusters, dataset: Dataset, by: str | None) -> Mix | None:
    """The mix by the named column, or by the first that looks like a source; None without one.

    A column looks like a source when its name is one of ``NAMES`` and it has 2 to 100 values, in at
    least half of the rows. Rows without a value do not count.

    Raises:
        SettingError: no row has the named column.
    """
    candidates = [by] if by else _candidates(dataset)
    if not candidates:
        return None
    columns = _read(dataset, candidates)
    for name, value_N in columns.items():
        values = sorted({value for value in value_N if value is not None})
        filled = sum(value is not None for value in value_N)
        if by and not values:
            raise SettingError(
                f"no row has a column {by!r}", fix=f"its columns are {', '.join(_names(dataset))}"
            )
        if by or (2 <= len(values) <= _MOST and 2 * filled >= len(value_N)):
            return _count(source, name, values, value_N)
    return None


def _names(dataset: Dataset) -> list[str]:
    rows = range(min(_LOOKED_AT, len(dataset)))
    return list(dict.fromkeys(name for row in rows for name in dataset[row].columns))


def _candidates(dataset: Dataset) -> list[str]:
    there = {name.lower(): name for name in reversed(_names(dataset))}
    found = [there[name] for name in NAMES if name in there]
    return found + ([FILE] if len(dataset.sources) > 1 and FILE not in there else [])


def _read(dataset: Dataset, names: list[str]) -> dict[str, list[str | None]]:
    """Of each column the value of every row, as text; None where there is none."""
    found: dict[str, list[str | None]] = {name: [] for name in names}
    for example in dataset:
        for name, values in found.items():
            value = example.columns.get(name)
            if name == FILE and FILE not in example.columns:
                value = os.path.basename(example.file)
            values.append(str(value) if isinstance(value, str | int | float) else None)
    return found


def _count(source: Clusters, by: str, values: list[str], value_N: list[str | None]) -> Mix:
    place = {value: at for at, value in enumerate(values)}
    code_N = np.array([-1 if value is None else place[value] for value in value_N])
    counted = (source.label >= 0) & (code_N >= 0)
    cell = source.label[counted].astype(np.int64) * len(values) + code_N[counted]
    rows_KV = np.bincount(cell, minlength=source.clusters * len(values))
    return Mix(by, values, rows_KV.reshape(source.clusters, len(values)))
