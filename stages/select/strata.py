"""Which source every row came from: a column of the original data, read back from there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from formats.clusters import Clusters
from formats.data import Dataset, Example, open_reference
from formats.errors import ArtifactError, DataError, SettingError
from stages.reporting import Reporter

MOST = 1000  # a column with more values names no sources


@dataclass(frozen=True)
class Strata:
    """The S strata of N rows.

    Attributes:
        names: the column's values as text, ascending.
        of_row: (N) int64, 0 where the row is not clustered.
    """

    names: tuple[str, ...]
    of_row: np.ndarray


def read_strata(clusters: Clusters, field: str, reporter: Reporter) -> Strata:
    """The values of a column for every clustered row.

    Args:
        clusters: the map; it says where the data are.
        field: the column's name.
        reporter: shows the progress.

    Raises:
        ArtifactError: the map does not say where the data are.
        DataError: they are gone or have changed, or a row has no such column or no plain value in it.
        SettingError: the column has more than ``MOST`` values.
    """
    rows = np.flatnonzero(clusters.label >= 0)
    number_of: dict[str, int] = {}
    found = np.zeros(clusters.rows, dtype=np.int64)
    with _open(clusters) as dataset, reporter.progress(f"reading {field}", len(rows)) as advance:
        for row, name in _names(dataset, rows, field):
            found[row] = number_of.setdefault(name, len(number_of))
            if len(number_of) > MOST:
                raise SettingError(
                    f"--stratify {field}: more than {MOST:,} different values, the last one {name!r}",
                    fix="name a column that holds few",
                )
            advance(1)
    names = sorted(number_of)
    place = np.zeros(max(1, len(names)), dtype=np.int64)
    place[[number_of[name] for name in names]] = np.arange(len(names))
    return Strata(tuple(names), place[found])


def _open(clusters: Clusters) -> Dataset:
    try:
        return open_reference(clusters.header.dataset, clusters.path.parent)
    except KeyError:
        raise ArtifactError(
            f"{clusters.path} does not say where its data are, and --stratify reads them",
            fix="start again from score",
        ) from None


def _names(dataset: Dataset, rows: np.ndarray, field: str) -> Iterator[tuple[int, str]]:
    for row in rows.tolist():
        yield row, _name(dataset[row], field)


def _name(example: Example, field: str) -> str:
    value: Any = example.columns.get(field)
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    place = f"{example.file}:{example.line}"
    if field not in example.columns:
        raise DataError(
            f"{place} has no column {field!r}",
            fix=f"give --stratify one of {', '.join(map(str, example.columns))}",
        )
    shown = json.dumps(value, ensure_ascii=False)
    raise DataError(
        f"{place}: column {field!r} holds {shown if len(shown) < 40 else shown[:37] + '...'}",
        fix="--stratify needs a text, a number, or true or false in every row",
    )
