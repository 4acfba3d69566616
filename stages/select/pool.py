"""What there is to choose from: the clustered rows, in an order that does not depend on row order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formats.clusters import Clusters
from formats.errors import ArtifactError, SettingError
from stages.select.lists import Lists
from stages.select.strata import Strata


@dataclass(frozen=True)
class Pool:
    """The P rows to choose from, ascending by id; of a content's rows the one that stands for it first.

    That is the one to be included, else one of the first stratum, else the first in the data.

    Attributes:
        row: (P) int64, row in the dataset.
        id: (P, 16) uint8.
        label: (P) int32, cluster.
        similarity: (P) float32, to the own centroid.
        copy: (P) int64, 0 for the row that stands for its content, 1, 2, ... for its repetitions.
        source: (P) int64, the row that carries the content's signature.
        must: (P) bool, to be selected whatever the method says; only where ``copy`` is 0.
        stratum: (P) int64.
        norm, loss: (P) float32; a duplicate has those of its first row.
        tokens: (P) int32, prompt and response.
        clusters: K.
        strata: names of the S strata; one without a name when nothing is stratified.
        excluded: clustered rows that were left out.
    """

    row: np.ndarray
    id: np.ndarray
    label: np.ndarray
    similarity: np.ndarray
    copy: np.ndarray
    source: np.ndarray
    must: np.ndarray
    stratum: np.ndarray
    norm: np.ndarray
    loss: np.ndarray
    tokens: np.ndarray
    clusters: int
    strata: tuple[str, ...] = ("",)
    excluded: int = 0

    def __len__(self) -> int:
        return len(self.row)

    @property
    def distinct(self) -> np.ndarray:
        """(P) bool, False for the repetitions of a content."""
        return self.copy == 0

    @property
    def cell(self) -> np.ndarray:
        """(P) int64, place of the row's stratum and cluster in a flattened (S, K)."""
        return self.stratum * self.clusters + self.label

    @property
    def size(self) -> np.ndarray:
        """(K) int64, rows of each cluster, duplicates counted."""
        return np.bincount(self.label, minlength=self.clusters)

    def count(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """(S, K) int64, rows of each stratum and cluster, or only the chosen ones of them."""
        cell = self.cell if chosen is None else self.cell[chosen]
        shape = (len(self.strata), self.clusters)
        return np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)

    def random_order(self, seed: int) -> np.ndarray:
        """(P) uint64 keys, uniform, the same for the same content whatever its row."""
        key = np.ascontiguousarray(self.id).view(">u8").astype(np.uint64)[:, 1]
        return scramble(key + self.copy.astype(np.uint64) * np.uint64(0xD1342543DE82EF95), seed)


def read_pool(clusters: Clusters, lists: Lists | None = None, strata: Strata | None = None) -> Pool:
    """The clustered rows of a map that are not excluded.

    Raises:
        ArtifactError: an array cannot be read, or no row is clustered.
        SettingError: every clustered row is excluded.
    """
    nothing = np.zeros(clusters.rows, dtype=bool)
    must, excluded = (lists.must, lists.excluded) if lists else (nothing, nothing)
    clustered = clusters.label >= 0
    rows = np.flatnonzero(clustered & ~excluded)
    if not clustered.any():
        raise ArtifactError(f"{clusters.path} has no clustered row: nothing to select")
    if not len(rows):
        raise SettingError(f"--exclude names all {clustered.sum():,} clustered rows")
    ids = clusters.column("example_id")[rows]
    high, low = ids.view(">u8").astype(np.uint64).reshape(-1, 2).T
    order = np.lexsort((rows, ~clusters.distinct[rows], low, high))
    rows, ids = rows[order], ids[order]
    copy, first = _copies(high[order], low[order])
    source = rows[first]
    stratum = strata.of_row[rows] if strata else np.zeros(len(rows), dtype=np.int64)
    # Rows of one content change places; what they have in common stays where it is.
    lead = np.lexsort((copy, stratum, ~must[rows], first))
    rows = rows[lead]
    return Pool(
        row=rows,
        id=ids,
        label=clusters.label[rows],
        similarity=clusters.column("similarity")[rows],
        copy=copy,
        source=source,
        must=must[rows],
        stratum=stratum[lead],
        norm=clusters.column("norm")[source],
        loss=clusters.column("loss")[source],
        tokens=clusters.column("row_tokens")[rows],
        clusters=clusters.clusters,
        strata=strata.names if strata else ("",),
        excluded=int((clustered & excluded).sum()),
    )


def _copies(high: np.ndarray, low: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of sorted ids: how many equal ones stand before each, and where the first of them stands."""
    place = np.arange(len(high))
    begins = np.ones(len(high), dtype=bool)
    begins[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    first = np.maximum.accumulate(np.where(begins, place, 0))
    return place - first, first


def scramble(key: np.ndarray, seed: int) -> np.ndarray:
    """Seeded scrambling of 64-bit keys (the finaliser of SplitMix64, Steele et al. 2014)."""
    value = key + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
