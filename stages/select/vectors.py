"""The signatures behind a map, for the methods that look at more than labels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from formats.clusters import Clusters
from formats.errors import ArtifactError, SettingError
from formats.signatures import Signatures
from stages.select.pool import Pool

MEMORY = 4 << 30  # bytes of signatures that are held at once, at most


def load(clusters: Clusters, pool: Pool, given: Path | None) -> np.ndarray:
    """Centred unit signatures of the pool's distinct rows, in pool order: (U, D) float32.

    Args:
        clusters: the map; it names the signatures it was made from, and the centre to take away.
        pool: its clustered rows.
        given: where the signatures are, if not where the map says.

    Raises:
        ArtifactError: they are not there, or are not those of the map.
        SettingError: they do not fit into memory.
    """
    signatures = _open(clusters, given)
    rows = pool.row[pool.distinct]
    size = len(rows) * signatures.dims * 4
    if size > MEMORY:
        raise SettingError(
            f"this choice holds all signatures in memory: {size / 2**30:.1f} GiB, more than "
            f"{MEMORY / 2**30:.0f}",
            fix="use --method cluster with --within farthest, nearest or random",
        )
    unit_UD = np.empty((len(rows), signatures.dims), dtype=np.float32)
    order = np.argsort(rows, kind="stable")
    for part, block_BD in signatures.stream():
        low, high = np.searchsorted(rows[order], (part.start, part.stop))
        unit_UD[order[low:high]] = block_BD[rows[order[low:high]] - part.start]
    unit_UD -= clusters.column("centre")
    length_U = np.sqrt(np.einsum("ud,ud->u", unit_UD, unit_UD))
    unit_UD /= np.where(length_U < 1e-6, np.float32(np.inf), length_U)[:, None]
    return unit_UD


def _open(clusters: Clusters, given: Path | None) -> Signatures:
    entry = clusters.header.inputs[0]
    path = given or Path(os.path.normpath(clusters.path.parent / entry["path"]))
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
