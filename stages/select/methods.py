"""The ways to choose: the method itself, and the arms it must beat, behind one signature.

A method is a function of the map, its pool and the settings; it gives a function from a number of
examples to pool indices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from formats.clusters import Clusters
from formats.errors import SettingError
from stages.select import arms
from stages.select.budget import Choose
from stages.select.greedy import ORDERS
from stages.select.members import preference, take
from stages.select.pool import Pool
from stages.select.quotas import appetites, fill
from stages.select.settings import Settings


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
    if settings.within in ORDERS:
        return arms.inside_clusters(clusters, pool, settings, settings.quota, settings.within)
    order = preference(pool, settings.within, settings.trim, settings.seed)
    appetite_K = appetites(settings.quota, pool.size, clusters.column("spread"))
    distinct_K = np.bincount(pool.label[pool.distinct], minlength=pool.clusters)
    repeated_K = pool.size - distinct_K

    def choose(count: int) -> np.ndarray:
        first = min(count, int(distinct_K.sum()))
        quota_K = fill(distinct_K, appetite_K, first)
        return take(pool, order, quota_K + fill(repeated_K, appetite_K, count - first))

    return choose


def balanced_random(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """Equal quotas, random members: what the choice within clusters adds is measured against it."""
    return by_cluster(clusters, pool, replace(settings, quota="equal", within="random", trim=0.0))


def proportional(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """Quotas by size, random members: stratified sampling (Neyman 1934), what equal quotas are
    measured against.
    """
    plain = replace(settings, quota="proportional", within="random", trim=0.0)
    return by_cluster(clusters, pool, plain)


METHODS = {
    "cluster": Method(by_cluster, weighted=True),
    "all": Method(arms.everything, needs_budget=False),
    "random": Method(arms.at_random),
    "balanced-random": Method(balanced_random, weighted=True),
    "proportional": Method(proportional, weighted=True),
    "loss": Method(arms.highest_loss),
    "loss-mid": Method(arms.middle_loss),
    "norm": Method(arms.largest_norm),
    "k-centre": Method(arms.k_centre),
    "facility": Method(arms.facility, weighted=True),
    "tagcos": Method(arms.tagcos, weighted=True),
}


def find(name: str) -> Method:
    """The method of that name.

    Raises:
        SettingError: there is none.
    """
    if name not in METHODS:
        raise SettingError(f"there is no method {name!r}", fix=f"use one of {', '.join(METHODS)}")
    return METHODS[name]
