"""What there is to choose from: the clustered rows, in an order that does not depend on row order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formats.clusters import Clusters
from formats.errors import ArtifactError


@dataclass(frozen=True)
class Pool:
    """The P clustered rows, ascending by id, then first rows of a content before its duplicates.

    Attributes:
        row: (P) int64, row in the dataset.
        id: (P, 16) uint8.
        label: (P) int32, cluster.
        similarity: (P) float32, to the own centroid.
        distinct: (P) bool, False for the repetitions of a content.
        copy: (P) int64, 0 for the first row of a content, 1, 2, ... for its duplicates.
        norm, loss: (P) float32; a duplicate has those of its first row.
        tokens: (P) int32, prompt and response.
        clusters: K.
    """

    row: np.ndarray
    id: np.ndarray
    label: np.ndarray
    similarity: np.ndarray
    distinct: np.ndarray
    copy: np.ndarray
    norm: np.ndarray
    loss: np.ndarray
    tokens: np.ndarray
    clusters: int

    def __len__(self) -> int:
        return len(self.row)

    @property
    def size(self) -> np.ndarray:
        """(K) int64, rows of each cluster, duplicates counted."""
        return np.bincount(self.label, minlength=self.clusters)

    def random_order(self, seed: int) -> np.ndarray:
        """(P) uint64 keys, uniform, the same for the same content whatever its row."""
        key = np.ascontiguousarray(self.id).view(">u8").astype(np.uint64)[:, 1]
        return scramble(key + self.copy.astype(np.uint64) * np.uint64(0xD1342543DE82EF95), seed)


def read_pool(clusters: Clusters) -> Pool:
    """The clustered rows of a map.

    Raises:
        ArtifactError: an array cannot be read, or no row is clustered.
    """
    label = clusters.label
    rows = np.flatnonzero(label >= 0)
    if not len(rows):
        raise ArtifactError(f"{clusters.path} has no clustered row: nothing to select")
    ids = clusters.column("example_id")[rows]
    distinct = clusters.distinct[rows]
    high, low = ids.view(">u8").astype(np.uint64).reshape(-1, 2).T
    order = np.lexsort((rows, ~distinct, low, high))
    rows, ids, distinct = rows[order], ids[order], distinct[order]
    copy, first = _copies(high[order], low[order])
    norm, loss = clusters.column("norm")[rows], clusters.column("loss")[rows]
    return Pool(
        row=rows,
        id=ids,
        label=label[rows],
        similarity=clusters.column("similarity")[rows],
        distinct=distinct,
        copy=copy,
        norm=norm[first],
        loss=loss[first],
        tokens=clusters.column("row_tokens")[rows],
        clusters=clusters.clusters,
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
