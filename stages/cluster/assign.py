"""Rows to their nearest centroid, and centroids to the middle of their rows.

The result must not depend on block size, threads, ranks or row order, but the last bits of a float32 matrix
product do. So the product only nominates: where the best centroids are closer than its rounding, the winner
is found again in float64, and stored similarities come from one float64 dot product per row. Sums over rows
are made of numbers rounded to a grid so coarse that float64 adds them without any error: in any order, over
any number of ranks, the sum is the same.

Shapes: B rows, D numbers of a signature, K clusters, U contents.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from formats.signatures import Signatures
from stages.cluster.contents import Contents
from stages.cluster.stream import stream
from stages.cluster.team import Team

_ROUNDING = 1e-5  # far above the error of a float32 dot product of unit vectors
_GRID = np.float32(2**24)  # float64 holds sums of 2**29 unit rows to this fraction exactly


def assign(
    signatures: Signatures,
    contents: Contents,
    centroid_KD: np.ndarray,
    centre_D: np.ndarray,
    team: Team = Team(),
    advance: Callable[..., None] = lambda rows: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Label (U) int32 and similarity (U) float32 of every content, on every rank.

    Args:
        signatures: read one block at a time, each rank its own.
        contents: which rows carry a signature.
        centroid_KD: unit rows, float32.
        centre_D: taken away from every row first.
        team: this rank and the others.
        advance: told the rows done.
    """
    label_U = np.zeros(len(contents), dtype=np.int32)
    similarity_U = np.zeros(len(contents), dtype=np.float32)
    clusters = len(centroid_KD)
    for place, rows_BD in stream(signatures, contents, team, clusters=clusters, advance=advance):
        centre_rows(rows_BD, centre_D)
        label_U[place], similarity_U[place] = nearest(rows_BD, centroid_KD)
    return team.total(label_U), team.total(similarity_U)


def moved(
    signatures: Signatures,
    contents: Contents,
    centroid_KD: np.ndarray,
    centre_D: np.ndarray,
    team: Team = Team(),
    advance: Callable[..., None] = lambda rows: None,
) -> np.ndarray:
    """The centroids after one Lloyd round over all contents; arguments as in ``assign``."""
    clusters = len(centroid_KD)
    total_KD = np.zeros(centroid_KD.shape)
    for place, rows_BD in stream(signatures, contents, team, clusters=clusters, advance=advance):
        centre_rows(rows_BD, centre_D)
        label_B = labels(rows_BD, centroid_KD)
        total_KD += sums(rows_BD, contents.multiplicity[place], label_B, clusters)
    return middles(team.total(total_KD), centroid_KD)


def labels(rows_BD: np.ndarray, centroid_KD: np.ndarray) -> np.ndarray:
    """(B) int32, the nearest centroid of each unit row; ties go to the lower number."""
    cosine_BK = rows_BD @ centroid_KD.T
    label_B = cosine_BK.argmax(axis=1)
    best_B = cosine_BK[np.arange(len(rows_BD)), label_B]
    close_BK = cosine_BK >= best_B[:, None] - np.float32(_ROUNDING)
    for row in np.flatnonzero(close_BK.sum(axis=1) > 1):
        rivals = np.flatnonzero(close_BK[row])
        exact = _dots(np.repeat(rows_BD[[row]], len(rivals), axis=0), centroid_KD[rivals])
        label_B[row] = rivals[exact.argmax()]
    return label_B.astype(np.int32)


def nearest(rows_BD: np.ndarray, centroid_KD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest centroid of each unit row (B) int32, and the cosine to it (B) float32."""
    label_B = labels(rows_BD, centroid_KD)
    return label_B, _dots(rows_BD, centroid_KD[label_B]).astype(np.float32)


def sums(
    rows_BD: np.ndarray, weight_B: np.ndarray, label_B: np.ndarray, clusters: int
) -> np.ndarray:
    """(K, D) float64: of each cluster the sum of its rows, each as often as its whole weight says."""
    from scipy.sparse import csr_matrix

    shape = (clusters, len(rows_BD))
    member_KB = csr_matrix((weight_B.astype(float), (label_B, np.arange(shape[1]))), shape)
    return member_KB @ np.rint(rows_BD * _GRID).astype(np.float64)


def middles(total_KD: np.ndarray, before_KD: np.ndarray) -> np.ndarray:
    """Unit centroids (K, D) float32 of the sums; where nothing is left, the one before."""
    length_K = np.sqrt(np.einsum("kd,kd->k", total_KD, total_KD))[:, None]
    unit_KD = total_KD / np.where(length_K > 0, length_K, 1)
    return np.where(length_K > 0, unit_KD.astype(np.float32), before_KD)


def centre_rows(rows_SD: np.ndarray, centre_D: np.ndarray) -> np.ndarray:
    """Takes the centre away and normalises again, in place; what becomes zero stays zero.

    Returns:
        (S) float32, the lengths before normalising.
    """
    rows_SD -= centre_D
    length_S = np.sqrt(np.einsum("sd,sd->s", rows_SD, rows_SD))
    # A row that was the centre itself has no direction left, only rounding.
    rows_SD /= np.where(length_S < 1e-6, np.float32(np.inf), length_S)[:, None]
    return length_S


def _dots(left_BD: np.ndarray, right_BD: np.ndarray) -> np.ndarray:
    """Row by row dot products in float64, each summed in the same order wherever the row stands."""
    result_B = np.empty(len(left_BD))
    for start in range(0, len(left_BD), 1024):  # converted in parts: float64 takes twice the room
        part = slice(start, start + 1024)
        left, right = left_BD[part].astype(np.float64), right_BD[part].astype(np.float64)
        result_B[part] = np.einsum("bd,bd->b", left, right)
    return result_B
