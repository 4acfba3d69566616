"""Pools made by hand, and as much of a map as methods that know only labels read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.select.pool import Pool
from tests.synthetic import make_ids


class FakeMap:
    """Has spreads and nothing else."""

    def __init__(self, clusters: int) -> None:
        self._spread = np.linspace(0, 1, clusters, dtype=np.float32)

    def column(self, name: str) -> np.ndarray:
        assert name == "spread"
        return self._spread


def make_pool(
    label: Sequence[int] | np.ndarray,
    times: Sequence[int] | np.ndarray,
    *,
    strata: int = 1,
    must: Sequence[int] | np.ndarray = (),
    clusters: int | None = None,
) -> Pool:
    """Contents with a label each, so many times each.

    Args:
        label: of each content.
        times: rows of each content.
        strata: S; the contents take turns.
        must: contents to be included.
        clusters: K, where the last ones are empty.
    """
    label, times = np.asarray(label), np.asarray(times)
    content = np.repeat(np.arange(len(label)), times)
    copy = np.concatenate([np.arange(n) for n in times])
    rows, random = len(content), np.random.default_rng(0)
    similarity = random.uniform(0, 1, len(label)).astype(np.float32)
    return Pool(
        row=np.arange(rows),
        id=make_ids(content),
        label=label[content].astype(np.int32),
        similarity=similarity[content],
        copy=copy,
        source=(np.cumsum(times) - times)[content],
        must=np.isin(content, must) & (copy == 0),
        stratum=content % strata,
        norm=np.ones(rows, dtype=np.float32),
        loss=np.ones(rows, dtype=np.float32),
        tokens=np.full(rows, 10, dtype=np.int32),
        clusters=clusters or int(label.max()) + 1,
        strata=tuple(map(str, range(strata))) if strata > 1 else ("",),
    )
