"""The ways to choose: the method itself, and the arms it must beat, behind one signature.

A method is a function of the pool and its settings; it gives a function from a number of examples to
pool indices, and says how they are weighted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from formats.clusters import Clusters
from formats.errors import SettingError
from stages.select.budget import Choose
from stages.select.members import preference, take
from stages.select.pool import Pool
from stages.select.quotas import appetites, fill


@dataclass(frozen=True)
class Settings:
    """What the methods read; each documents what it heeds."""

    quota: str = "equal"
    within: str = "farthest"
    trim: float = 0.01
    seed: int = 0


@dataclass(frozen=True)
class Method:
    """An entry of ``METHODS``.

    Attributes:
        prepare: (map, pool, settings) -> Choose.
        weighted: whether clusters are weighted back to their shares; otherwise all weights are 1.
        needs_budget: whether a budget must be given.
    """

    prepare: Callable[[Clusters, Pool, Settings], Choose]
    weighted: bool = False
    needs_budget: bool = True


def by_cluster(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """Balanced over clusters, diverse within them: the published method.

    Distinct contents are shared out first; duplicates are drawn on only when the budget is larger than
    the number of distinct contents.
    """
    order = preference(pool, settings.within, settings.trim, settings.seed)
    appetite_K = appetites(settings.quota, pool.size, clusters.column("spread"))
    distinct_K = np.bincount(pool.label[pool.distinct], minlength=pool.clusters)
    repeated_K = pool.size - distinct_K

    def choose(count: int) -> np.ndarray:
        first = min(count, int(distinct_K.sum()))
        quota_K = fill(distinct_K, appetite_K, first)
        return take(pool, order, quota_K + fill(repeated_K, appetite_K, count - first))

    return choose


def everything(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """Every clustered row, duplicates included: training on the full data."""
    return lambda count: np.arange(len(pool))


def at_random(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """Rows drawn uniformly without replacement, duplicates included: the baseline to beat."""
    order = np.argsort(pool.random_order(settings.seed), kind="stable")
    return lambda count: order[:count]


METHODS = {
    "cluster": Method(by_cluster, weighted=True),
    "all": Method(everything, needs_budget=False),
    "random": Method(at_random),
}


def find(name: str) -> Method:
    """The method of that name.

    Raises:
        SettingError: there is none.
    """
    if name not in METHODS:
        raise SettingError(f"there is no method {name!r}", fix=f"use one of {', '.join(METHODS)}")
    return METHODS[name]
