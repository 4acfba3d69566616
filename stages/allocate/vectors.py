"""The signatures of the selected examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from formats import artifacts
from formats.errors import ArtifactError, SettingError
from formats.places import join
from formats.selection import Selection
from formats.signatures import OK, TRUNCATED, Signatures, as_keys
from stages.threads import one_thread

MEMORY = 4 << 30  # bytes of signatures that are held, at most
SHORT = 512  # numbers that angles can be told from (Johnson and Lindenstrauss 1984)


def load(selection: Selection, given: Path | None) -> np.ndarray:
    """Unit signatures of the selected examples, (M, D) float32; a duplicate has its first row's.

    Where they do not fit into memory as they are, they are projected to D = 512 while they are read.

    Args:
        selection: what was selected.
        given: where the signatures are; otherwise the selection's map says it.

    Raises:
        ArtifactError: they are not there, or do not hold the selected examples.
        SettingError: they do not fit into memory even so.
    """
    signatures = _open(selection, given)
    dims = signatures.dims
    project_Dd = None
    if len(selection) * dims * 4 > MEMORY and dims > SHORT:
        project_Dd, dims = projection(dims, np.random.default_rng(0)), SHORT
    size = len(selection) * dims * 4
    if size > MEMORY:
        raise SettingError(
            f"the signatures of the selection take {size / 2**30:.1f} GiB, more than "
            f"{MEMORY / 2**30:.0f}",
            fix="use --strategy disjoint",
        )
    row = _rows(selection, signatures)
    vector_MD = np.empty((len(selection), dims), dtype=np.float32)
    order = np.argsort(row, kind="stable")
    row = row[order]
    for part, block_BD in signatures.stream():
        low, high = np.searchsorted(row, (part.start, part.stop))
        wanted_BD = block_BD[row[low:high] - part.start]
        vector_MD[order[low:high]] = (
            wanted_BD if project_Dd is None else shorten(wanted_BD, project_Dd)
        )
    return vector_MD


def projection(dims: int, random: np.random.Generator) -> np.ndarray:
    """(D, 512) float32, which nearly preserves lengths and angles."""
    return random.standard_normal((dims, SHORT), dtype=np.float32) / np.float32(np.sqrt(SHORT))


def shorten(vector_MD: np.ndarray, project_Dd: np.ndarray) -> np.ndarray:
    """(M, 512) float32; the same bits for any number of threads, and so the same plan."""
    with one_thread():
        return vector_MD @ project_Dd


def load_norms(selection: Selection, given: Path | None) -> np.ndarray:
    """Lengths of the selected examples' gradients before they became signatures, (M) float32.

    Args:
        selection, given: as in ``load``.

    Raises:
        ArtifactError: the signatures are not there, or do not hold the selected examples.
    """
    signatures = _open(selection, given)
    return signatures.column("norm")[_rows(selection, signatures)]


def _rows(selection: Selection, signatures: Signatures) -> np.ndarray:
    """(M) the row of the signatures that carries each example's content."""
    status = signatures.column("status")
    usable = np.flatnonzero((status == OK) | (status == TRUNCATED))
    known = as_keys(signatures.column("example_id")[usable])
    order = np.argsort(known, kind="stable")
    wanted = as_keys(selection.id)
    at = np.minimum(np.searchsorted(known[order], wanted), max(len(known) - 1, 0))
    if not len(known) or (known[order[at]] != wanted).any():
        raise ArtifactError(
            f"{signatures.path} does not hold every example of {selection.path}",
            fix="name the signatures it was selected from with --signatures",
        )
    return usable[order[at]]


def _open(selection: Selection, given: Path | None) -> Signatures:
    path = given or _follow(selection)
    try:
        return Signatures.open(path)
    except FileNotFoundError:
        raise ArtifactError(
            f"the signatures behind {selection.path} are not at {path}",
            fix="say where they are with --signatures",
        ) from None


def _follow(selection: Selection) -> Path:
    """From the selection to its map, from the map to its signatures."""
    try:
        entry = selection.header.inputs[0]["path"]
        clusters = join(selection.path.parent, entry)
        entry = artifacts.read_header(clusters, "clusters").inputs[0]["path"]
    except (ArtifactError, IndexError, KeyError):
        raise ArtifactError(
            f"{selection.path} does not lead to its signatures (its cluster map is gone)",
            fix="say where they are with --signatures",
        ) from None
    return join(clusters.parent, entry)
