"""The contents a map is fitted on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from formats.clusters import Clusters
from formats.signatures import Signatures
from stages.cluster.assign import centre_rows
from stages.cluster.contents import Contents, draw
from stages.cluster.fit import mean_direction
from stages.cluster.spread import Sample, spread
from stages.cluster.stream import load
from stages.cluster.team import Team


@dataclass(frozen=True)
class Fitted:
    """Centred rows to fit on. Shapes as in ``spread.Sample``; only rank 0 holds ``row_SD``.

    Attributes:
        chosen: (S) the sampled contents, ascending.
        row_SD, length_S, weight_S, norm_S: see ``spread.Sample``.
        centre_D: what was taken away, on every rank.
    """

    chosen: np.ndarray
    row_SD: np.ndarray
    length_S: np.ndarray
    weight_S: np.ndarray
    norm_S: np.ndarray
    centre_D: np.ndarray

    @classmethod
    def load(
        cls,
        source: Signatures,
        contents: Contents,
        params: dict[str, Any],
        old: Clusters | None,
        team: Team,
    ) -> Fitted:
        """Draws and centres the sample: on the old map's centre, or on its own mean."""
        chosen = draw(contents, params["sample"], params["seed"])
        row_SD = load(source, contents.only(chosen), team)
        weight_S = contents.multiplicity[chosen].astype(np.float64)
        if old is not None:
            centre_D = old.column("centre")
        elif params["centre"]:
            centre_D = team.first(lambda: mean_direction(row_SD, weight_S))
        else:
            centre_D = np.zeros(source.dims, dtype=np.float32)
        length_S = centre_rows(row_SD, centre_D)
        norm_S = source.column("norm")[contents.row[chosen]]
        return cls(chosen, row_SD, length_S, weight_S, norm_S, centre_D)

    def spread(self, label_U: np.ndarray, clusters: int) -> np.ndarray:
        """(K) float32, see ``stages.cluster.spread``; rank 0 alone."""
        label_S = label_U[self.chosen]
        sample = Sample(self.row_SD, self.length_S, self.weight_S, self.norm_S, label_S)
        return spread(sample, self.centre_D, clusters)
