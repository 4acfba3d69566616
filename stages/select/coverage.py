"""How much of the data is distinct: how near every example is to a selected one.

For examples drawn from all distinct contents: the cosine, in the map's centred space, to the nearest
*other* example that is selected, averaged. Selecting everything reaches a value below 1; a smaller
selection keeps some share of it. The least fraction that keeps 95 % is what ``auto`` selects.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from formats.clusters import Clusters
from stages.select import vectors
from stages.select.budget import Choose, rows
from stages.select.pool import Pool, scramble

FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.31, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
KEPT = (0.9, 0.95, 0.99)
_PROBES = 2_000  # examples whose nearest selected one is looked for


def curve(
    clusters: Clusters,
    pool: Pool,
    choose: Choose,
    given: Path | None,
    wanted: float,
    least: int = 1,
) -> dict[str, Any]:
    """The coverage curve of a way to choose, and the fraction that keeps ``wanted`` of it.

    Args:
        clusters: the map.
        pool: its clustered rows.
        choose: number of examples -> pool indices.
        given: where the signatures are, if not where the map says.
        wanted: share of the reachable similarity, 0 to 1.
        least: examples in the smallest selection there can be; smaller fractions are that large.

    Returns:
        ``reachable``: similarity when all is selected; ``curve``: [{"fraction", "similarity",
        "kept"}]; ``needed``: fractions that keep 90, 95 and 99 %; ``fraction``: the one for
        ``wanted``; ``reason``: it in words.

    Raises:
        ArtifactError: see ``vectors.load``.
    """
    similarity_F = _similarities(clusters, pool, choose, given, least)
    reachable = similarity_F[-1]
    # Examples that have nothing in common leave nothing to lose: the smallest fraction keeps it all.
    kept_F = (
        np.maximum.accumulate(similarity_F / reachable)
        if reachable > 0
        else np.ones(len(similarity_F))
    )
    fraction = _needed(kept_F, wanted)
    reason = (
        f"{fraction:.1%} of the rows keep {wanted:.0%} of the reachable similarity to the nearest "
        f"selected example ({reachable:.3f} when all are selected)"
    )
    return {
        "reachable": round(float(reachable), 6),
        "curve": [
            {"fraction": f, "similarity": round(float(s), 6), "kept": round(float(k), 6)}
            for f, s, k in zip(FRACTIONS, similarity_F, kept_F, strict=True)
        ],
        "needed": {str(share): _needed(kept_F, share) for share in KEPT},
        "fraction": fraction,
        "reason": reason,
    }


def _needed(kept_F: np.ndarray, share: float) -> float:
    """The least fraction that keeps the share, between two measured ones by interpolation."""
    at = int(np.argmax(kept_F >= share - 1e-9))
    if at == 0 or kept_F[at] == kept_F[at - 1]:
        return FRACTIONS[at]
    part = (share - kept_F[at - 1]) / (kept_F[at] - kept_F[at - 1])
    return round(float(FRACTIONS[at - 1] + part * (FRACTIONS[at] - FRACTIONS[at - 1])), 4)


def _similarities(
    clusters: Clusters, pool: Pool, choose: Choose, given: Path | None, least: int
) -> np.ndarray:
    """(F) mean cosine of the probes to the nearest other selected example, for each fraction."""
    probe = _probes(pool)
    # In float64: the last bits of a product depend on its shape, and so on the size of a block.
    probe_PD = np.empty((len(probe), clusters.column("centre").shape[0]))
    place_of = np.full(int(pool.distinct.sum()), -1)
    place_of[probe] = np.arange(len(probe))
    for place, block_BD in vectors.stream(clusters, pool, given):
        found = place_of[place]
        probe_PD[found[found >= 0]] = block_BD[found >= 0]
    counts = [max(least, rows(fraction, pool)) for fraction in FRACTIONS]
    selected_FU = np.array([_selected(pool, choose(count)) for count in counts])
    best_FP = np.full((len(FRACTIONS), len(probe)), -1.0)
    for place, block_BD in vectors.stream(clusters, pool, given):
        cosine_PB = probe_PD @ block_BD.T
        cosine_PB[place[None, :] == probe[:, None]] = -1.0  # itself
        for best_P, selected_U in zip(best_FP, selected_FU, strict=True):
            inside = selected_U[place]
            if inside.any():
                np.maximum(best_P, cosine_PB[:, inside].max(axis=1), out=best_P)
    return np.maximum(best_FP, 0).mean(axis=1)


def _probes(pool: Pool) -> np.ndarray:
    """Places, among distinct contents, of a sample that does not depend on row order."""
    key = np.ascontiguousarray(pool.id[pool.distinct]).view(">u8").astype(np.uint64)[:, 1]
    return np.sort(np.argsort(scramble(key, 1), kind="stable")[:_PROBES])


def _selected(pool: Pool, indices: np.ndarray) -> np.ndarray:
    """(U) bool, which of the distinct contents are among some pool indices."""
    chosen = np.zeros(len(pool), dtype=bool)
    chosen[indices] = True
    return chosen[pool.distinct]
