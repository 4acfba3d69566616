"""Makes a map: from a sample of contents to the label of every content."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from formats.clusters import Clusters
from formats.signatures import Signatures
from stages.cluster import auto
from stages.cluster.assign import assign
from stages.cluster.contents import Contents, draw
from stages.cluster.fit import centre_rows, fit, load_sample, mean_direction
from stages.cluster.reuse import threshold
from stages.cluster.spread import Sample, spread
from stages.reporting import Reporter

_TRIES, _FEW_ROWS = 4, 20_000  # up to so many rows several starts cost little and help
_SMALLEST_NEW = 3  # contents a new cluster must hold to be opened


@dataclass(frozen=True)
class Map:
    """A map before it is written. Shapes as in ``formats.clusters``; U contents."""

    centroid_KD: np.ndarray
    centre_D: np.ndarray
    spread_K: np.ndarray
    label_U: np.ndarray
    similarity_U: np.ndarray
    notes: dict[str, Any] = field(default_factory=dict)


def fresh(
    source: Signatures, contents: Contents, params: dict[str, Any], reporter: Reporter
) -> Map:
    """Fits on a sample, assigns every content, numbers the clusters by size."""
    sample = _Sample.load(source, contents, params, None)
    wanted, notes = _number(params, sample, reporter)
    tries = _TRIES if len(sample.chosen) <= _FEW_ROWS else 1
    centroid_KD = fit(sample.row_SD, sample.weight_S, wanted, params["seed"], tries=tries)
    with reporter.progress("cluster", source.rows) as advance:
        label_U, similarity_U = assign(source, contents, centroid_KD, sample.centre_D, advance)
    order, label_U = number(label_U, contents.multiplicity)
    if len(order) < wanted:
        reporter.message(f"{len(order)} clusters instead of {wanted}: the others were empty")
    spread_K = sample.spread(label_U, len(order))
    return Map(centroid_KD[order], sample.centre_D, spread_K, label_U, similarity_U, notes)


def reused(
    source: Signatures,
    contents: Contents,
    old: Clusters,
    params: dict[str, Any],
    reporter: Reporter,
) -> Map:
    """Assigns every content to the clusters of an old map, whose numbers stay.

    With ``params["refit"]`` centroids are fitted again, starting where they were; with
    ``params["extend"]`` contents that are far from all of them may open new clusters.
    """
    centroid_KD = old.column("centroid")
    sample = _Sample.load(source, contents, params, None if params["refit"] else old)
    if params["refit"]:
        centroid_KD = fit(
            sample.row_SD, sample.weight_S, len(centroid_KD), params["seed"], start=centroid_KD
        )
    with reporter.progress("cluster", source.rows) as advance:
        label_U, similarity_U = assign(source, contents, centroid_KD, sample.centre_D, advance)
    notes: dict[str, Any] = {}
    if params["extend"]:
        centroid_KD, opened = _extend(
            source, contents, old, sample, centroid_KD, label_U, similarity_U, params["seed"]
        )
        notes["opened"] = opened
    spread_K = sample.spread(label_U, len(centroid_KD))
    return Map(centroid_KD, sample.centre_D, spread_K, label_U, similarity_U, notes)


@dataclass(frozen=True)
class _Sample:
    """Centred rows to fit on. Shapes as in ``spread.Sample``."""

    chosen: np.ndarray  # (S) contents
    row_SD: np.ndarray
    length_S: np.ndarray
    weight_S: np.ndarray
    norm_S: np.ndarray
    centre_D: np.ndarray

    @classmethod
    def load(
        cls, source: Signatures, contents: Contents, params: dict[str, Any], old: Clusters | None
    ) -> _Sample:
        """Draws and centres the sample: on the old map's centre, or on its own mean."""
        chosen = draw(contents, params["sample"], params["seed"])
        row_SD = load_sample(source, contents, chosen)
        weight_S = contents.multiplicity[chosen].astype(np.float64)
        if old is not None:
            centre_D = old.column("centre")
        elif params["centre"]:
            centre_D = mean_direction(row_SD, weight_S)
        else:
            centre_D = np.zeros(source.dims, dtype=np.float32)
        length_S = centre_rows(row_SD, centre_D)
        norm_S = source.column("norm")[contents.row[chosen]]
        return cls(chosen, row_SD, length_S, weight_S, norm_S, centre_D)

    def spread(self, label_U: np.ndarray, clusters: int) -> np.ndarray:
        """(K) float32, see ``stages.cluster.spread``."""
        label_S = label_U[self.chosen]
        sample = Sample(self.row_SD, self.length_S, self.weight_S, self.norm_S, label_S)
        return spread(sample, self.centre_D, clusters)


def _number(
    params: dict[str, Any], sample: _Sample, reporter: Reporter
) -> tuple[int, dict[str, Any]]:
    """K, and why when it was chosen here."""
    if params["clusters"] != "auto":
        return params["clusters"], {}
    # Ids are hashes, so the first contents by id are as good a sample as any.
    part = slice(0, auto.SAMPLE)
    choice = auto.choose(sample.row_SD[part], sample.weight_S[part], params["seed"])
    reporter.message(choice.reason)
    return choice.clusters, {"auto": {"reason": choice.reason, "curve": choice.curve}}


def number(label_U: np.ndarray, multiplicity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drops empty clusters and numbers the others by descending size, then smallest id.

    Args:
        label_U: (U) provisional labels, contents ascending by id.
        multiplicity: (U) rows of each content.

    Returns:
        The provisional labels in their new order, and the (U) int32 new labels.
    """
    used, first, inverse = np.unique(label_U, return_index=True, return_inverse=True)
    size = np.bincount(inverse, weights=multiplicity)
    order = np.lexsort((first, -size))
    renumbered = np.empty(len(used), dtype=np.int32)
    renumbered[order] = np.arange(len(used), dtype=np.int32)
    return used[order], renumbered[inverse]


def _extend(
    source: Signatures,
    contents: Contents,
    old: Clusters,
    sample: _Sample,
    centroid_KD: np.ndarray,
    label_U: np.ndarray,
    similarity_U: np.ndarray,
    seed: int,
) -> tuple[np.ndarray, int]:
    """Opens clusters for far contents; changes their label and similarity in place.

    Only contents below the threshold move, and only to a new centroid that is nearer; so every label
    of what fits the old map stays. Returns all centroids, and how many are new.
    """
    far = np.flatnonzero(similarity_U < threshold(old))
    sampled = np.isin(sample.chosen, far)
    far_SD, weight_S = sample.row_SD[sampled], sample.weight_S[sampled]
    if len(far_SD) < _SMALLEST_NEW:
        return centroid_KD, 0
    wanted = auto.choose(far_SD[: auto.SAMPLE], weight_S[: auto.SAMPLE], seed).clusters
    new_KD = fit(far_SD, weight_S, wanted, seed, tries=_TRIES)
    part = contents.only(far)
    new_label, new_similarity = assign(source, part, new_KD, sample.centre_D, lambda rows: None)
    nearer = new_similarity > similarity_U[far]
    large = np.bincount(new_label[nearer], minlength=len(new_KD)) >= _SMALLEST_NEW
    moved = nearer & large[new_label]
    order, renumbered = number(new_label[moved], part.multiplicity[moved])
    label_U[far[moved]] = len(centroid_KD) + renumbered
    similarity_U[far[moved]] = new_similarity[moved]
    return np.concatenate([centroid_KD, new_KD[order]]), len(order)
