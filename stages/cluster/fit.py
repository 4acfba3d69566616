"""k-means on the unit sphere (Dhillon and Modha 2001), by scikit-learn on a sample that fits memory.

Shapes: S sampled contents, D numbers of a signature, K clusters.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import numpy as np

from formats.signatures import Signatures
from stages.cluster.contents import Contents


def load_sample(signatures: Signatures, contents: Contents, chosen: np.ndarray) -> np.ndarray:
    """The signatures of chosen contents: (S, D) float32, in the order of ``chosen``."""
    rows = contents.row[chosen]
    place = np.argsort(rows, kind="stable")
    ascending = rows[place]
    sample_SD = np.empty((len(rows), signatures.dims), dtype=np.float32)
    for part, block_BD in signatures.stream():
        low, high = np.searchsorted(ascending, (part.start, part.stop))
        sample_SD[place[low:high]] = block_BD[ascending[low:high] - part.start]
    return sample_SD


def mean_direction(sample_SD: np.ndarray, weight_S: np.ndarray) -> np.ndarray:
    """Weighted mean of the rows, (D) float32."""
    total = np.zeros(sample_SD.shape[1])
    with one_thread():
        for part in _slices(len(sample_SD)):  # float64 sums without a float64 copy of the sample
            total += weight_S[part] @ sample_SD[part].astype(np.float64)
    return (total / weight_S.sum()).astype(np.float32)


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


def fit(
    sample_SD: np.ndarray,
    weight_S: np.ndarray,
    clusters: int,
    seed: int,
    *,
    tries: int = 1,
    iterations: int = 100,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Unit centroids (K', D) float32; K' < K when there are fewer distinct directions.

    With ``start`` each centroid keeps its number, and one that loses all its rows stays where it was.

    Args:
        sample_SD: unit rows, float32; restored to within rounding afterwards.
        weight_S: how often each row counts.
        clusters: K.
        seed: of the k-means++ start (Arthur and Vassilvitskii 2007).
        tries: starts; the best one is kept.
        iterations: at most so many Lloyd rounds.
        start: (K, D) unit centroids to begin with.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    if start is not None and len(start) > len(sample_SD):
        return start  # fewer rows than centroids say nothing about where they belong
    model = KMeans(
        n_clusters=min(clusters, len(sample_SD)),
        init="k-means++" if start is None else start,
        n_init=tries,
        max_iter=iterations,
        random_state=seed % 2**32,
        copy_x=False,
        algorithm="lloyd",
    )
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than K: see below
        label_S = model.fit(sample_SD, sample_weight=weight_S).labels_
    used = np.unique(label_S)
    centroid_KD = unit(model.cluster_centers_.astype(np.float32))
    if start is None:
        return centroid_KD[used]
    kept_KD = start.copy()
    kept_KD[used] = centroid_KD[used]
    return kept_KD


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Sums in one fixed order: with more threads the last bits depend on who finishes first."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(limits=1):
        yield


def unit(rows_KD: np.ndarray) -> np.ndarray:
    """Rows of length 1; zero rows stay zero."""
    length_K = np.linalg.norm(rows_KD.astype(np.float64), axis=1, keepdims=True)
    return (rows_KD / np.where(length_K > 0, length_K, 1)).astype(np.float32)


def _slices(rows: int, step: int = 4096) -> Iterator[slice]:
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
