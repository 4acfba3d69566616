"""What must hold for any sizes, duplicates, strata and budgets (issue "cluster and select", shown 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stages.select import methods
from stages.select.pool import Pool
from stages.select.quotas import QUOTAS, fill, needed, quotas
from stages.select.settings import Settings
from stages.select.weights import share_weights
from tests.stages.select.pools import FakeMap, make_pool


@dataclass(frozen=True)
class Case:
    """A pool, and a budget that holds what has to be in it."""

    pool: Pool
    count: int
    quota: str
    minimum: int

    @property
    def chosen(self) -> np.ndarray:
        chosen = methods.by_cluster(
            FakeMap(self.pool.clusters),  # type: ignore[arg-type]
            self.pool,
            Settings(quota=self.quota, min_per_cluster=self.minimum),
        )
        return chosen(self.count)


def case(
    contents: list[tuple[int, int]],
    strata: int = 1,
    must: int = 0,
    minimum: int = 0,
    part: float = 0.0,
    quota: str = "equal",
    empty: int = 0,
) -> Case:
    """From (cluster, rows) of each content; ``part`` is where the budget lies between least and all."""
    label, times = zip(*contents, strict=True)
    chosen = np.random.default_rng(0).permutation(len(label))[:must]
    pool = make_pool(label, times, strata=strata, must=chosen, clusters=max(label) + 1 + empty)
    least = max(1, int(needed(pool, minimum).sum()))
    return Case(pool, least + int(part * (len(pool) - least)), quota, minimum)


CASES = st.builds(
    case,
    contents=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), min_size=1, max_size=60),
    strata=st.integers(1, 4),
    must=st.integers(0, 5),
    minimum=st.integers(0, 4),
    part=st.floats(0, 1),
    quota=st.sampled_from(QUOTAS) | st.floats(0, 1),
    empty=st.integers(0, 3),
)
TINY = case([(c, 1) for c in range(10)])  # one example for ten clusters
MORE_CLUSTERS_THAN_BUDGET = case([(c, 2) for c in range(30)], part=0.2)
ONE_CLUSTER = case([(0, 1)] * 20, part=0.5)
ALL_DUPLICATES = case([(0, 4)] * 1, part=0.7)
REPEATED_EVERYWHERE = case([(c % 3, 4) for c in range(9)], strata=2, part=0.8)
PLAIN = (TINY, MORE_CLUSTERS_THAN_BUDGET, ONE_CLUSTER, ALL_DUPLICATES, REPEATED_EVERYWHERE)


@settings(max_examples=150, deadline=None)
@given(CASES)
@example(TINY)
@example(MORE_CLUSTERS_THAN_BUDGET)
@example(ONE_CLUSTER)
@example(ALL_DUPLICATES)
@example(REPEATED_EVERYWHERE)
def test_the_budget_is_spent_on_different_rows(case: Case) -> None:
    chosen = case.chosen
    assert len(chosen) == len(set(chosen.tolist())) == case.count
    distinct = int(case.pool.distinct.sum())
    assert case.pool.distinct[chosen].sum() == min(case.count, distinct)
    assert case.pool.must.sum() == case.pool.must[chosen].sum()


@settings(max_examples=150, deadline=None)
@given(CASES)
def test_quotas_sum_to_the_budget_and_fit(case: Case) -> None:
    pool = case.pool
    given_ = Settings(min_per_cluster=case.minimum)
    spread = FakeMap(pool.clusters).column("spread")
    quota_SK = quotas(pool, given_, case.quota, spread)(case.count)
    assert quota_SK.sum() == case.count
    assert (quota_SK >= pool.count(pool.must)).all()
    assert (quota_SK <= pool.count()).all()


@settings(max_examples=150, deadline=None)
@given(CASES)
def test_every_cluster_is_represented_when_the_budget_allows(case: Case) -> None:
    chosen_K = case.pool.count(case.chosen).sum(axis=0)
    assert (chosen_K >= needed(case.pool, case.minimum)).all()
    if case.count >= needed(case.pool, max(1, case.minimum)).sum():
        assert (chosen_K[case.pool.size > 0] > 0).all()


@settings(max_examples=150, deadline=None)
@given(CASES)
@example(TINY)
@example(MORE_CLUSTERS_THAN_BUDGET)
@example(ONE_CLUSTER)
@example(ALL_DUPLICATES)
@example(REPEATED_EVERYWHERE)
def test_weights_restore_every_share(case: Case) -> None:
    pool, chosen = case.pool, case.chosen
    weight = share_weights(pool, chosen)
    assert abs(weight.mean() - 1) < 1e-9
    assert (weight > 0).all()
    taken = np.bincount(pool.label[chosen], weights=weight, minlength=pool.clusters) / case.count
    represented = pool.count(chosen).sum(axis=0) > 0
    share = pool.size / pool.size[represented].sum()
    assert np.abs(taken - share)[represented].max() < 1e-9
    size_SK, chosen_SK = pool.count(), pool.count(chosen)
    if ((chosen_SK > 0) == (size_SK > 0)).all():  # then the mix of strata is kept as well
        by_cell = np.bincount(pool.cell[chosen], weights=weight, minlength=size_SK.size)
        assert np.abs(by_cell / case.count - size_SK.ravel() / len(pool)).max() < 1e-9


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=15),
    st.floats(0, 1),
)
def test_quotas_differ_by_one_where_clusters_are_large_enough(
    both: list[tuple[int, int]], part: float
) -> None:
    capacity = np.array([max(pair) for pair in both])
    least = np.array([min(pair) for pair in both])
    budget = int(least.sum() + part * (capacity.sum() - least.sum()))
    quota = fill(capacity, np.ones(len(both)), budget, least)
    assert quota.sum() == budget
    assert ((quota >= least) & (quota <= capacity)).all()
    # Who could take more has no less than who could give back, but for one.
    open_, giving = quota[quota < capacity], quota[quota > np.maximum(least, 1)]
    if len(open_) and len(giving):
        assert giving.max() - open_.min() <= 1


def test_the_examples_are_what_they_are_called() -> None:
    budgets = [case.count for case in PLAIN]
    assert budgets == [1, 12, 10, 3, 29]
    assert [int((case.pool.size > 0).sum()) for case in PLAIN] == [10, 30, 1, 1, 3]
    assert int(ALL_DUPLICATES.pool.distinct.sum()) == 1
