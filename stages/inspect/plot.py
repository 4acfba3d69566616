"""A cluster map as a picture: a dot for each example, a number in the middle of each cluster.

Few clusters are shown as they lie: in the plane in which examples differ most (scikit-learn's PCA). Many
clusters point into many directions and would cover each other in any plane; they are laid out by t-SNE (van
der Maaten and Hinton 2008) on the first 50 principal components: what lies together is similar there, but
distances between groups say little.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from formats.clusters import Clusters
from formats.errors import ArtifactError, SettingError
from formats.signatures import as_keys

SAMPLE = 4_000  # examples drawn in a plane
_LAID_OUT = 2_500  # examples drawn by t-SNE, which takes seconds for so many
_FEW = 10  # clusters that a plane can show
_COMPONENTS = 50
_NUMBERED = 150  # centroids that get their number, the largest ones
_GOLDEN = 0.6180339887  # steps of this part of the colour circle keep neighbours apart
_SIDE, _DPI = 9.0, 150  # inches
# What can be written, and what is kept out of it: the same map must give the same file.
_STAMPS: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


def plot(source: Clusters, picture: Path) -> None:
    """Draws the map: a dot per sampled example, coloured by cluster, and each centroid's number.

    Numbers grow with the square root of the cluster's size. The same map gives the same picture.

    Args:
        source: the map; its signatures are looked for where it says.
        picture: to write; the name's ending says how (.png, .svg, .pdf).

    Raises:
        SettingError: matplotlib is not installed, or the ending is another.
        ArtifactError: the signatures are not there, are not the map's, or the picture cannot be
            written.
    """
    figures = _matplotlib(picture)
    plane = source.clusters <= _FEW
    rows = _sampled(source, SAMPLE if plane else _LAID_OUT)
    row_SD = _rows(source, rows)
    spot_S2, words = _in_plane(row_SD) if plane or len(rows) <= _FEW else _laid_out(row_SD)
    figure = figures.Figure(figsize=(_SIDE, _SIDE), dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    colour_K4, label_S = _colours(source.clusters), source.label[rows]
    axes.scatter(*spot_S2.T, s=_dot(len(rows)), c=colour_K4[label_S], alpha=0.55, lw=0)
    _write_numbers(axes, source.size, _middles(spot_S2, label_S), colour_K4)
    axes.set_title(
        f"{source.size.sum():,} examples in {source.clusters} clusters\n({len(rows):,} drawn; {words})",
        fontsize=11,
    )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.06)
    _save(figure, picture)


def _matplotlib(picture: Path) -> Any:
    try:
        from matplotlib import figure
    except ImportError:
        raise SettingError(
            "--plot needs matplotlib", fix="pip install 'cluster-cli[report]'"
        ) from None
    if picture.suffix.lower() not in _STAMPS:
        raise SettingError(
            f"--plot cannot draw a {picture.suffix or 'file without an ending'}: {picture}",
            fix=f"name a file that ends in {', '.join(_STAMPS)}",
        )
    return figure


def _sampled(source: Clusters, most: int) -> np.ndarray:
    """Rows to draw, ascending; ids are hashes, so the smallest ones are a sample in any row order."""
    rows = np.flatnonzero(source.distinct)
    key = as_keys(source.column("example_id")[rows])
    return np.sort(rows[np.argsort(key, kind="stable")[:most]])


def _rows(source: Clusters, rows: np.ndarray) -> np.ndarray:
    """Centred unit signatures of the rows, (S, D) float32."""
    signatures = source.signatures()
    row_SD = np.empty((len(rows), signatures.dims), dtype=np.float32)
    for part, block_BD in signatures.stream():
        low, high = np.searchsorted(rows, (part.start, part.stop))
        row_SD[low:high] = block_BD[rows[low:high] - part.start]
    row_SD -= source.column("centre")
    length_S = np.linalg.norm(row_SD, axis=1, keepdims=True)
    return row_SD / np.where(length_S < 1e-6, 1, length_S)


def _in_plane(row_SD: np.ndarray) -> tuple[np.ndarray, str]:
    """Places of the rows (S, 2) in their first two principal components, and that in words."""
    spot_SC, share_C = _components(row_SD, 2)
    spot_S2 = np.pad(spot_SC, ((0, 0), (0, 2 - spot_SC.shape[1])))
    return spot_S2, f"{share_C.sum():.0%} of their variance lies in this plane"


def _laid_out(row_SD: np.ndarray) -> tuple[np.ndarray, str]:
    from sklearn.manifold import TSNE

    spot_SC, _ = _components(row_SD, _COMPONENTS)
    near = min(30.0, (len(spot_SC) - 1) / 3)
    model = TSNE(2, perplexity=near, init="pca", random_state=0, n_jobs=1)
    return model.fit_transform(spot_SC.astype(np.float32)), "similar ones together, by t-SNE"


def _components(row_SD: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows in at most so many principal components (S, C), and each one's share of the variance."""
    from sklearn.decomposition import PCA

    if len(row_SD) == 1:
        return np.zeros((1, 1)), np.zeros(1)
    small = min(row_SD.shape)
    solver = "full" if small < 500 else "randomized"
    model = PCA(min(most, small), svd_solver=solver, random_state=0)
    return model.fit_transform(row_SD), np.nan_to_num(model.explained_variance_ratio_)


def _middles(spot_S2: np.ndarray, label_S: np.ndarray) -> dict[int, np.ndarray]:
    """Where each cluster's number goes: at the dot nearest to the median of its dots."""
    found = {}
    for cluster in np.unique(label_S).tolist():
        own = spot_S2[label_S == cluster]
        away = np.linalg.norm(own - np.median(own, axis=0), axis=1)
        found[cluster] = own[away.argmin()]
    return found


def _colours(clusters: int) -> np.ndarray:
    """(K, 4): hues that are far apart for neighbouring numbers, in three depths."""
    from matplotlib.colors import hsv_to_rgb

    number = np.arange(clusters)
    hue = (number * _GOLDEN) % 1
    depth = np.array([0.85, 0.65, 0.95])[number // 7 % 3]
    colour_K3 = hsv_to_rgb(np.stack([hue, np.full(clusters, 0.75), depth], axis=1))
    return np.concatenate([colour_K3, np.ones((clusters, 1))], axis=1)


def _dot(rows: int) -> float:
    return float(np.clip(6_000 / max(1, rows), 3, 30))


def _write_numbers(
    axes: Any, size_K: np.ndarray, middle: dict[int, np.ndarray], colour_K4: np.ndarray
) -> None:
    shown = [k for k in np.argsort(-size_K, kind="stable").tolist() if k in middle][:_NUMBERED]
    scale = 13 if len(shown) <= 20 else 9 if len(shown) <= 60 else 7
    for cluster in reversed(shown):  # the largest last, on top
        points = scale * (0.7 + 0.6 * np.sqrt(size_K[cluster] / max(1, size_K.max())))
        axes.annotate(
            str(cluster),
            middle[cluster],
            fontsize=points,
            ha="center",
            va="center",
            bbox={
                "boxstyle": "circle,pad=0.25",
                "facecolor": "white",
                "edgecolor": colour_K4[cluster],
                "linewidth": 1.5,
                "alpha": 0.85,
            },
        )


def _save(figure: Any, picture: Path) -> None:
    """Writes beside the picture, then renames."""
    import matplotlib as mpl

    half = picture.with_name(f".{picture.stem}.{os.getpid()}{picture.suffix}")
    try:
        with mpl.rc_context({"svg.hashsalt": "cluster-cli"}):
            figure.savefig(half, metadata=_STAMPS[picture.suffix.lower()])
        os.replace(half, picture)
    except OSError as error:
        raise ArtifactError(f"cannot write {picture}: {error.strerror}") from error
    finally:
        half.unlink(missing_ok=True)
