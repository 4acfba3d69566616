"""Makes a map: from a sample of contents to the label of every content.

Every rank goes through the same steps. The sample is fitted by rank 0 alone; rounds over all contents and
the assignment are shared, each rank reading its own blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from formats.clusters import Clusters
from formats.signatures import Signatures
from stages.cluster import auto
from stages.cluster.assign import assign, moved
from stages.cluster.contents import Contents
from stages.cluster.fit import fit
from stages.cluster.join import fit_joined
from stages.cluster.reuse import threshold
from stages.cluster.sample import Fitted
from stages.cluster.team import Team
from stages.reporting import Reporter

_TRIES, _FEW = 4, 2_000_000  # up to so many rows times clusters several starts cost little
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


@dataclass(frozen=True)
class Mapper:
    """What a map is made of, and by whom.

    Attributes:
        source: the signatures.
        contents: their distinct usable contents.
        params: see ``settings.expected``.
        team: this rank and the others.
        reporter: where progress goes.
    """

    source: Signatures
    contents: Contents
    params: dict[str, Any]
    team: Team
    reporter: Reporter

    def fresh(self) -> Map:
        """Fits on a sample, assigns every content, numbers the clusters by size."""
        sample = self._sample(None)
        wanted, notes = self.team.first(lambda: _number(self.params, sample))
        centroid_KD = self._refined(sample, self._fit(sample, wanted))
        label_U, similarity_U = self._assign(sample, centroid_KD)
        order, label_U = number(label_U, self.contents.multiplicity)
        if len(order) < wanted:
            notes["wanted"] = wanted
        return self._map(sample, centroid_KD[order], label_U, similarity_U, notes)

    def reused(self, old: Clusters) -> Map:
        """Assigns every content to the clusters of an old map, whose numbers stay.

        With ``params["refit"]`` centroids are fitted again, starting where they were; with
        ``params["extend"]`` contents that are far from all of them may open new clusters.
        """
        centroid_KD = old.column("centroid")
        sample = self._sample(None if self.params["refit"] else old)
        if self.params["refit"]:
            fitted_KD = self._fit(sample, len(centroid_KD), start=centroid_KD)
            centroid_KD = self._refined(sample, fitted_KD)
        label_U, similarity_U = self._assign(sample, centroid_KD)
        notes: dict[str, Any] = {}
        if self.params["extend"]:
            centroid_KD, opened = self._extend(old, sample, centroid_KD, label_U, similarity_U)
            notes["opened"] = opened
        return self._map(sample, centroid_KD, label_U, similarity_U, notes)

    def _sample(self, old: Clusters | None) -> Fitted:
        return Fitted.load(self.source, self.contents, self.params, old, self.team)

    def _fit(self, sample: Fitted, wanted: int, start: np.ndarray | None = None) -> np.ndarray:
        few = len(sample.chosen) * wanted <= _FEW
        tries = _TRIES if few else 1
        if len(sample.chosen) < len(self.contents):
            self.reporter.message(
                f"fitting {wanted:,} clusters on {len(sample.chosen):,} of "
                f"{len(self.contents):,} distinct examples"
            )
        rows, weight_S, seed = sample.row_SD, sample.weight_S, self.params["seed"]
        if start is not None:
            return self.team.first(lambda: fit(rows, weight_S, wanted, seed, start=start))
        return self.team.first(lambda: fit_joined(rows, weight_S, wanted, seed, tries=tries))

    def _refined(self, sample: Fitted, centroid_KD: np.ndarray) -> np.ndarray:
        """After Lloyd rounds over all contents, where the sample was only a part of them."""
        if len(sample.chosen) == len(self.contents):
            return centroid_KD
        for _ in range(self.params.get("rounds", 1)):
            with self.reporter.progress("refine", self.source.rows) as advance:
                centroid_KD = moved(
                    self.source,
                    self.contents,
                    centroid_KD,
                    sample.centre_D,
                    self.team,
                    advance,
                )
        return centroid_KD

    def _assign(self, sample: Fitted, centroid_KD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with self.reporter.progress("assign", self.source.rows) as advance:
            return assign(
                self.source, self.contents, centroid_KD, sample.centre_D, self.team, advance
            )

    def _extend(
        self,
        old: Clusters,
        sample: Fitted,
        centroid_KD: np.ndarray,
        label_U: np.ndarray,
        similarity_U: np.ndarray,
    ) -> tuple[np.ndarray, int]:
        """Opens clusters for far contents; changes their label and similarity in place.

        Only contents below the threshold move, and only to a new centroid that is nearer; so every
        label of what fits the old map stays. Returns all centroids, and how many are new.
        """
        far = np.flatnonzero(similarity_U < threshold(old))
        sampled = np.isin(sample.chosen, far)
        if sampled.sum() < _SMALLEST_NEW:
            return centroid_KD, 0
        new_KD = self.team.first(lambda: _fit_far(sample, sampled, self.params["seed"]))
        part = self.contents.only(far)
        new_label, new_similarity = assign(self.source, part, new_KD, sample.centre_D, self.team)
        nearer = new_similarity > similarity_U[far]
        large = np.bincount(new_label[nearer], minlength=len(new_KD)) >= _SMALLEST_NEW
        leaves = nearer & large[new_label]
        order, renumbered = number(new_label[leaves], part.multiplicity[leaves])
        label_U[far[leaves]] = len(centroid_KD) + renumbered
        similarity_U[far[leaves]] = new_similarity[leaves]
        return np.concatenate([centroid_KD, new_KD[order]]), len(order)

    def _map(
        self,
        sample: Fitted,
        centroid_KD: np.ndarray,
        label_U: np.ndarray,
        similarity_U: np.ndarray,
        notes: dict[str, Any],
    ) -> Map:
        spread_K = self.team.first(lambda: sample.spread(label_U, len(centroid_KD)))
        return Map(centroid_KD, sample.centre_D, spread_K, label_U, similarity_U, notes)


def _number(params: dict[str, Any], sample: Fitted) -> tuple[int, dict[str, Any]]:
    """K, and why when it was chosen here."""
    if params["clusters"] != "auto":
        return params["clusters"], {}
    # Ids are hashes, so the first contents by id are as good a sample as any.
    part = slice(0, auto.SAMPLE)
    choice = auto.choose(sample.row_SD[part], sample.weight_S[part], params["seed"])
    return choice.clusters, {"auto": {"reason": choice.reason, "curve": choice.curve}}


def _fit_far(sample: Fitted, sampled: np.ndarray, seed: int) -> np.ndarray:
    """Centroids for the sampled contents that fit nowhere, as many as they need."""
    far_SD, weight_S = sample.row_SD[sampled], sample.weight_S[sampled]
    wanted = auto.choose(far_SD[: auto.SAMPLE], weight_S[: auto.SAMPLE], seed).clusters
    return fit_joined(far_SD, weight_S, wanted, seed, tries=_TRIES)


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
