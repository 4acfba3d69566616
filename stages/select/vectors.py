"""The signatures behind a map, for the methods that look at more than labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from formats.clusters import Clusters
from formats.errors import ArtifactError, SettingError
from formats.places import join
from formats.signatures import Signatures
from stages.select.pool import Pool

NARROW = 512  # numbers that tell two members of one cluster apart well enough
MEMORY = 4 << 30  # bytes of signatures that are held at once, at most


def load(clusters: Clusters, pool: Pool, given: Path | None, *, narrow: bool = False) -> np.ndarray:
    """Centred unit signatures of the pool's distinct rows, in pool order: (U, D) float32.

    Args:
        clusters: the map; it names the signatures it was made from, and the centre to take away.
        pool: its clustered rows.
        given: where the signatures are, if not where the map says.
        narrow: keep ``NARROW`` numbers of each, where it has more.

    Raises:
        ArtifactError: they are not there, or are not those of the map.
        SettingError: they do not fit into memory.
    """
    rows = pool.source[pool.distinct]
    dims = clusters.column("centre").shape[0]
    fold = Fold(dims, NARROW) if narrow and dims > NARROW else None
    dims = NARROW if fold else dims
    size = len(rows) * dims * 4
    if size > MEMORY:
        raise SettingError(
            f"this choice holds all signatures in memory: {size / 2**30:.1f} GiB, more than "
            f"{MEMORY / 2**30:.0f}",
            fix="use --method cluster with --within farthest, nearest or random",
        )
    unit_UD = np.empty((len(rows), dims), dtype=np.float32)
    for place, block_BD in stream(clusters, pool, given):
        unit_UD[place] = fold(block_BD) if fold else block_BD
    return unit_UD


class Fold:
    """Unit rows of fewer numbers whose cosines are nearly the same: a count-sketch with equal buckets
    (Charikar, Chen and Farach-Colton 2002), its signs drawn once for all data.

    Sums of neighbours are made in one order whatever the number of threads, as a matrix product is not.
    """

    def __init__(self, dims: int, narrow: int) -> None:
        self.each = -(-dims // narrow)
        self.shape = (narrow, self.each)
        self.sign_D = np.random.default_rng(0).choice(np.array([-1, 1], dtype=np.float32), dims)

    def __call__(self, unit_BD: np.ndarray) -> np.ndarray:
        """(B, narrow) float32; a row of zeros stays one."""
        signed_BD = unit_BD * self.sign_D
        padded_BD = np.pad(signed_BD, ((0, 0), (0, np.prod(self.shape) - signed_BD.shape[1])))
        return unit(padded_BD.reshape(len(unit_BD), *self.shape).sum(axis=2))


def stream(
    clusters: Clusters, pool: Pool, given: Path | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same block by block: places among the pool's distinct rows (b), and their (b, D) float32."""
    signatures = _open(clusters, given)
    rows, centre_D = pool.source[pool.distinct], clusters.column("centre")
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    for part, block_BD in signatures.stream():
        low, high = np.searchsorted(ascending, (part.start, part.stop))
        yield order[low:high], centred(block_BD[ascending[low:high] - part.start], centre_D)


def centred(block_BD: np.ndarray, centre_D: np.ndarray) -> np.ndarray:
    """Unit rows after taking the centre away, (B, D) float32; a row equal to the centre becomes zero."""
    return unit(block_BD - centre_D)


def unit(row_BD: np.ndarray) -> np.ndarray:
    """Rows at length one, in place; next to nothing becomes zero."""
    length_B = np.sqrt(np.einsum("bd,bd->b", row_BD, row_BD))
    row_BD /= np.where(length_B < 1e-6, np.float32(np.inf), length_B)[:, None]
    return row_BD


def _open(clusters: Clusters, given: Path | None) -> Signatures:
    if not clusters.header.inputs:
        raise ArtifactError(f"{clusters.path} does not say which signatures it was made from")
    entry = clusters.header.inputs[0]
    path = given or join(clusters.path.parent, entry["path"])
    try:
        signatures = Signatures.open(path)
    except FileNotFoundError:
        raise ArtifactError(
            f"this choice needs the signatures of {clusters.path}, which are not at {path}",
            fix="say where they are with --signatures",
        ) from None
    if signatures.header.key != entry["sha256"]:
        raise ArtifactError(
            f"{path} are not the signatures {clusters.path} was made from",
            fix="cluster them again, or name the right ones with --signatures",
        )
    return signatures
