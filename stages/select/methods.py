"""The ways to choose: the method itself, and the arms it must beat, behind one signature.

A method is a function of the map, its pool and the settings; it gives a function from a number of
examples to pool indices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from formats.clusters import Clusters
from formats.errors import ArtifactError, SettingError
from stages.select import arms
from stages.select.budget import Choose
from stages.select.greedy import ORDERS
from stages.select.members import preference, take
from stages.select.pool import Pool
from stages.select.quotas import quotas
from stages.select.settings import Settings


@dataclass(frozen=True)
class Method:
    """An entry of ``METHODS``.

    Attributes:
        prepare: (map, pool, settings) -> Choose.
        weighted: whether clusters are weighted back to their shares; otherwise all weights are 1.
        needs_budget: whether a budget must be given.
        quotas: whether it shares the budget over clusters.
        kind: the kind of signatures that the map must be made from, see ``score --kind``; "" for any.
    """

    prepare: Callable[[Clusters, Pool, Settings], Choose]
    weighted: bool = False
    needs_budget: bool = True
    quotas: bool = False
    kind: str = ""


def by_cluster(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """The method: quotas over clusters, and an order of the members within each."""
    if settings.within in ORDERS:
        return arms.inside_clusters(
            clusters, pool, settings, settings.quota, settings.within, scaled=True
        )
    order = preference(pool, settings.within, settings.trim, settings.seed)
    quota_of = quotas(pool, settings, settings.quota, clusters.column("spread"))
    return lambda count: take(pool, order, quota_of(count))


def balanced_random(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """Equal quotas, random members: what the choice within clusters adds is measured against it."""
    return by_cluster(clusters, pool, replace(settings, quota="equal", within="random", trim=0.0))


def proportional(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """Quotas by size, random members: stratified sampling (Neyman 1934), what equal quotas are
    measured against.
    """
    plain = replace(settings, quota="proportional", within="random", trim=0.0)
    return by_cluster(clusters, pool, plain)


def s2l(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """The same number of random examples from every cluster of loss trajectories: S2L (Yang et al. 2024).

    As in the paper small clusters are taken whole, what they leave is shared by the larger ones, and
    examples are not weighted. There trajectories are clustered by Euclidean distance; the rows of a map
    are centred unit vectors, so here it is the shape of a trajectory that counts and not its height.
    """
    return balanced_random(clusters, pool, settings)


METHODS = {
    "cluster": Method(by_cluster, weighted=True, quotas=True),
    "all": Method(arms.everything, needs_budget=False),
    "random": Method(arms.at_random),
    "balanced-random": Method(balanced_random, weighted=True, quotas=True),
    "proportional": Method(proportional, weighted=True, quotas=True),
    "loss": Method(arms.highest_loss),
    "loss-mid": Method(arms.middle_loss),
    "norm": Method(arms.largest_norm),
    "k-centre": Method(arms.k_centre),
    "facility": Method(arms.facility, weighted=True, quotas=True),
    "tagcos": Method(arms.tagcos, weighted=True, quotas=True),
    "s2l": Method(s2l, quotas=True, kind="trajectory"),
    "embedding": Method(arms.prototypes, kind="embedding"),
}
_MORE = {"trajectory": " --checkpoint EARLY --checkpoint LATE"}  # what `score` needs for a kind


def check_map(name: str, clusters: Clusters) -> None:
    """Raises ArtifactError when the method needs a map of other signatures than this one's."""
    kind = METHODS[name].kind
    found = clusters.header.extra.get("space", {}).get("kind")
    if kind and found != kind:
        raise ArtifactError(
            f"--method {name} needs a map of signatures of the kind {kind}, "
            f"and {clusters.path} is one of the kind {found or 'unknown'}",
            fix=f"make one with `cluster-cli score DATA --model MODEL --kind {kind}"
            f"{_MORE.get(kind, '')} -o {kind}.zarr` and "
            f"`cluster-cli cluster {kind}.zarr -o {kind}-clusters.zarr`",
        )


def find(name: str) -> Method:
    """The method of that name.

    Raises:
        SettingError: there is none.
    """
    if name not in METHODS:
        raise SettingError(f"there is no method {name!r}", fix=f"use one of {', '.join(METHODS)}")
    return METHODS[name]
