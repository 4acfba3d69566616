"""Every row to its nearest centroid, block by block.

The result must not depend on block size, thread count or row order, but the last bits of a matrix
product do. So the product only nominates: where the best centroids are closer than its rounding, the
winner is found again in float64, and stored similarities come from one float64 dot product per row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from formats.signatures import Signatures
from stages.cluster.contents import Contents
from stages.cluster.fit import centre_rows, one_thread

_ROUNDING = 1e-5  # far above the error of a float32 dot product of unit vectors
_CELLS = 1 << 25  # numbers in one product, 128 MiB of float32


def assign(
    signatures: Signatures,
    contents: Contents,
    centroid_KD: np.ndarray,
    centre_D: np.ndarray,
    advance: Callable[..., None],
) -> tuple[np.ndarray, np.ndarray]:
    """Label (U) int32 and similarity (U) float32 of every content.

    Args:
        signatures: read one block at a time.
        contents: which rows carry a signature.
        centroid_KD: unit rows, float32.
        centre_D: taken away from every row first.
        advance: told the rows done.
    """
    by_row = np.argsort(contents.row, kind="stable")
    ascending = contents.row[by_row]
    label = np.full(len(contents), -1, dtype=np.int32)
    similarity = np.zeros(len(contents), dtype=np.float32)
    step = max(1, _CELLS // (len(centroid_KD) + centroid_KD.shape[1]))
    with one_thread():
        for part, block_BD in signatures.stream():
            low, high = np.searchsorted(ascending, (part.start, part.stop))
            for start in range(low, high, step):
                chosen = slice(start, min(start + step, high))
                rows_BD = block_BD[ascending[chosen] - part.start]
                centre_rows(rows_BD, centre_D)
                place = by_row[chosen]
                label[place], similarity[place] = nearest(rows_BD, centroid_KD)
            advance(part.stop - part.start)
    return label, similarity


def nearest(rows_BD: np.ndarray, centroid_KD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest centroid of each unit row, and the cosine to it; ties go to the lower number."""
    cosine_BK = rows_BD @ centroid_KD.T
    label_B = cosine_BK.argmax(axis=1)
    best_B = cosine_BK[np.arange(len(rows_BD)), label_B]
    close_BK = cosine_BK >= best_B[:, None] - np.float32(_ROUNDING)
    for row in np.flatnonzero(close_BK.sum(axis=1) > 1):
        rivals = np.flatnonzero(close_BK[row])
        exact = _dots(np.repeat(rows_BD[[row]], len(rivals), axis=0), centroid_KD[rivals])
        label_B[row] = rivals[exact.argmax()]
    return label_B.astype(np.int32), _dots(rows_BD, centroid_KD[label_B]).astype(np.float32)


def _dots(left_BD: np.ndarray, right_BD: np.ndarray) -> np.ndarray:
    """Row by row dot products in float64, each summed in the same order wherever the row stands."""
    result_B = np.empty(len(left_BD))
    for start in range(0, len(left_BD), 1024):  # converted in parts: float64 takes twice the room
        part = slice(start, start + 1024)
        left, right = left_BD[part].astype(np.float64), right_BD[part].astype(np.float64)
        result_B[part] = np.einsum("bd,bd->b", left, right)
    return result_B
