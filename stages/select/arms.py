"""What the method must beat. None of them looks at lessons and weights them back, except where said.

Examples to be included come first in every order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

import numpy as np

from formats.clusters import Clusters
from stages.select import greedy, vectors
from stages.select.budget import Choose
from stages.select.members import outliers
from stages.select.pool import Pool
from stages.select.quotas import quotas
from stages.select.settings import Settings

PART = 2_048  # members of a cluster that a greedy order looks at together, at most


def everything(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """Every clustered row, duplicates included: training on the full data."""
    return lambda count: np.arange(len(pool))


def at_random(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """Rows drawn uniformly without replacement, duplicates included: the baseline to beat."""
    order = np.lexsort((pool.random_order(settings.seed), ~pool.must))
    return lambda count: order[:count]


def highest_loss(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """The examples the model is worst at (hard examples; Loshchilov and Hutter 2016)."""
    return _first(pool, -pool.loss.astype(np.float64))


def middle_loss(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """The examples of the most ordinary loss: neither known already nor hopeless (the middle of the
    perplexity range; Marion et al. 2023).
    """
    loss = pool.loss.astype(np.float64)
    place = np.argsort(np.argsort(loss[pool.distinct], kind="stable"), kind="stable")
    distance = np.full(len(pool), np.inf)
    distance[pool.distinct] = np.abs(place - (len(place) - 1) / 2)
    return _first(pool, distance)


def largest_norm(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """The examples with the longest gradients (GraNd; Paul et al. 2021)."""
    return _first(pool, -pool.norm.astype(np.float64))


def prototypes(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """The examples farthest from their cluster's centre, over all clusters together: self-supervised
    prototypes (Sorscher et al. 2022; for text D4, Tirumala et al. 2023).

    The map is one of mean hidden states: what examples are about, not what they teach. To compare the
    two spaces and nothing else, use the method ``cluster`` on that map.
    """
    return _first(pool, pool.similarity.astype(np.float64))


def k_centre(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """The examples that cover all signatures best, see ``greedy.k_centre``."""
    candidates = np.flatnonzero(pool.distinct)
    unit_UD = vectors.load(clusters, pool, settings.signatures)
    stream = greedy.k_centre(unit_UD, np.flatnonzero(pool.must[candidates]).tolist())
    return _lazily(map(candidates.__getitem__, stream), _repeats(pool, np.arange(len(pool))))


def facility(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """Inside each cluster, a proportional number of the examples that represent it best, see
    ``greedy.facility``.
    """
    return inside_clusters(clusters, pool, settings, "proportional", "facility")


def tagcos(clusters: Clusters, pool: Pool, settings: Settings) -> Choose:
    """Inside each cluster, a proportional number of the examples whose gradients add up to the
    cluster's mean gradient, see ``greedy.matching_pursuit``.
    """
    return inside_clusters(clusters, pool, settings, "proportional", "pursuit")


def inside_clusters(
    clusters: Clusters,
    pool: Pool,
    settings: Settings,
    quota: str | float,
    order: str,
    *,
    scaled: bool = False,
) -> Choose:
    """Quotas over clusters, and inside each (of each stratum) a greedy order of ``greedy.ORDERS``.

    Distinct contents come first; duplicates fill what is left of the budget, by the same quotas.

    Args:
        clusters: the map.
        pool: what there is.
        settings: ``signatures``, ``min_per_cluster``; where scaled also ``trim`` and ``seed``.
        quota: of ``quotas.QUOTAS``.
        order: of ``greedy.ORDERS``.
        scaled: at a cost that is linear in the rows, with narrowed signatures and by turns over parts of
            a large cluster; and outliers come after all other distinct contents.
    """
    unit_UD = vectors.load(clusters, pool, settings.signatures, narrow=scaled)
    candidates = np.flatnonzero(pool.distinct)
    if order == "pursuit":  # the only one that looks at lengths
        unit_UD *= pool.norm[candidates][:, None]
    must_U, key_U = pool.must[candidates], pool.random_order(settings.seed)[candidates]
    odd_U = outliers(pool, settings.trim if scaled else 0.0)[candidates] & ~must_U
    most = PART if scaled else len(candidates)
    cell_P = pool.cell
    cell_U = cell_P[candidates]

    def ordered(own: np.ndarray) -> Iterator[int]:  # copies its rows when it is asked for the first
        turns = greedy.by_turns(order, unit_UD[own], must_U[own], key_U[own], most)
        yield from map(candidates[own].__getitem__, turns)

    def chooser(cell: int) -> Choose:
        own = cell_U == cell
        usual, odd = np.flatnonzero(own & ~odd_U), np.flatnonzero(own & odd_U)
        stream = chain(ordered(usual), ordered(odd))
        return _lazily(stream, _repeats(pool, np.flatnonzero(cell_P == cell)))

    choosers = [chooser(cell) for cell in range(pool.count().size)]
    quota_of = quotas(pool, settings, quota, clusters.column("spread"))

    def choose(count: int) -> np.ndarray:
        each = zip(choosers, quota_of(count).ravel().tolist(), strict=True)
        return np.concatenate([pick(n) for pick, n in each if n])

    return choose


def _first(pool: Pool, wish: np.ndarray) -> Choose:
    """Distinct contents by ascending wish, ties by id; then the duplicates."""
    order = np.lexsort((wish, pool.copy, ~pool.must))
    return lambda count: order[:count]


def _repeats(pool: Pool, among: np.ndarray) -> np.ndarray:
    """The duplicates among some rows, each content's first one before any second one."""
    repeats = among[~pool.distinct[among]]
    return repeats[np.argsort(pool.copy[repeats], kind="stable")]


def _lazily(stream: Iterator[int], rest: np.ndarray) -> Choose:
    """Runs a greedy order only as far as it is asked for, and never twice."""
    known: list[int] = []

    def choose(count: int) -> np.ndarray:
        known.extend(islice(stream, max(0, count - len(known))))
        taken = np.array(known[:count], dtype=np.int64)
        return np.concatenate([taken, rest[: count - len(taken)]])

    return choose
