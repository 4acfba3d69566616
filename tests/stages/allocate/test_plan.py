"""Invariants of every plan, for random selections, ranks and batch shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.artifacts import Header
from formats.errors import SettingError
from formats.selection import Selection
from stages.allocate.deal import Deal
from stages.allocate.report import figures, padded_tokens, shared_cluster
from stages.allocate.shape import Shape
from stages.allocate.strategies import STRATEGIES, plan


def make_selection(cluster: np.ndarray, tokens: np.ndarray) -> Selection:
    count = len(cluster)
    return Selection(
        path=None,  # type: ignore[arg-type]
        header=Header("selection", "key", {}, []),
        row=np.arange(count) * 3,
        id=np.zeros((count, 16), dtype=np.uint8),
        cluster=cluster.astype(np.int32),
        weight=np.ones(count),
        similarity=np.zeros(count, dtype=np.float32),
        tokens=tokens.astype(np.int32),
    )


def random_selection(count: int, clusters: int, seed: int, longest: int = 300) -> Selection:
    random = np.random.default_rng(seed)
    tokens = np.clip(random.lognormal(4, 0.8, count), 1, longest)
    return make_selection(random.integers(0, clusters, count), tokens)


def first_deal(selection: Selection, shape: Shape, strategy: str, seed: int = 0) -> Deal:
    vectors = vectors_of(selection)
    plans = plan(selection, shape, strategy, epochs=1, seed=seed, rotate=False, vectors=vectors)
    return next(plans)


def first_grid(selection: Selection, shape: Shape, strategy: str, seed: int = 0) -> np.ndarray:
    return first_deal(selection, shape, strategy, seed).grid()


def vectors_of(selection: Selection) -> np.ndarray:
    """A direction for each cluster, and noise."""
    random = np.random.default_rng(0)
    direction = random.normal(size=(int(selection.cluster.max()) + 1, 6))
    rows = direction[selection.cluster] + random.normal(size=(len(selection), 6))
    return rows.astype(np.float32)


def test_epochs_have_other_orders_and_seeds_other_plans() -> None:
    selection = random_selection(200, 10, 0)
    shape = Shape(200, 4, 1, 1)
    for strategy in STRATEGIES:
        vectors = vectors_of(selection)
        deals = plan(selection, shape, strategy, epochs=2, seed=0, rotate=False, vectors=vectors)
        first, second = (deal.grid() for deal in deals)
        again = first_grid(selection, shape, strategy)
        other = first_grid(selection, shape, strategy, seed=1)
        assert np.array_equal(first, again)
        assert not np.array_equal(first, second)
        assert not np.array_equal(first, other)


def test_rotation_moves_clusters_to_the_next_rank() -> None:
    selection = make_selection(np.repeat(np.arange(4), 10), np.full(40, 7))
    deals = plan(selection, Shape(40, 4, 1, 1), "disjoint", epochs=4, seed=0, rotate=True)
    grids = [deal.grid() for deal in deals]
    homes = [[set(selection.cluster[g[:, 0, r, 0]]) for r in range(4)] for g in grids]
    assert all(len(home) == 1 for epoch in homes for home in epoch)
    for epoch in range(3):
        assert homes[epoch + 1] == [homes[epoch][-1], *homes[epoch][:-1]]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6])
def test_clusters_stay_whole_where_counts_and_lengths_allow(ranks: int) -> None:
    cluster = np.repeat(np.arange(12), 20)
    tokens = np.tile(np.arange(10, 210, 10), 12)
    grid = first_grid(make_selection(cluster, tokens), Shape(240, ranks, 1, 1), "disjoint")
    owners = [set(cluster[grid[:, :, rank].ravel()]) for rank in range(ranks)]
    assert sum(len(owner) for owner in owners) == 12


def test_only_as_many_clusters_are_split_as_equal_counts_demand() -> None:
    cluster, tokens = np.repeat(np.arange(10), 12), np.full(120, 50)
    grid = first_grid(make_selection(cluster, tokens), Shape(120, 4, 1, 1), "disjoint")
    owners = [set(cluster[grid[:, :, rank].ravel()]) for rank in range(4)]
    assert sum(len(owner) for owner in owners) - 10 == 2


@settings(max_examples=40, deadline=None)
@given(
    clusters=st.integers(1, 20),
    ranks=st.integers(2, 6),
    rows=st.integers(8, 30),
    seed=st.integers(0, 99),
)
def test_disjoint_ranks_never_meet(clusters: int, ranks: int, rows: int, seed: int) -> None:
    """With at least twice as many equal clusters as ranks no step shows a cluster on two ranks."""
    cluster = np.repeat(np.arange(2 * ranks + clusters), rows)
    tokens = np.random.default_rng(seed).integers(20, 200, len(cluster))
    selection = make_selection(cluster, tokens)
    deal = first_deal(selection, Shape(len(cluster), ranks, 1, 1), "disjoint", seed)
    assert shared_cluster(deal, cluster) == 0


def test_disjoint_matches_lengths_and_random_does_not() -> None:
    selection = random_selection(2000, 60, 1)
    shape = Shape(2000, 4, 1, 1)
    ours = figures(first_deal(selection, shape, "disjoint"), selection.cluster, selection.tokens)
    chance = figures(first_deal(selection, shape, "random"), selection.cluster, selection.tokens)
    assert ours["shared_cluster"] == 0 < chance["shared_cluster"]
    assert ours["padded_ratio_mean"] <= 1.03 < chance["padded_ratio_mean"]
    assert ours["waiting"] < 0.03 < chance["waiting"]


def test_lengths_are_shuffled_over_time() -> None:
    """No quarter of an epoch is much longer or shorter than the whole: steps are not sorted."""
    selection = random_selection(1600, 40, 2)
    for strategy in ("disjoint", "interleaved"):
        padded = padded_tokens(
            first_deal(selection, Shape(1600, 4, 1, 1), strategy), selection.tokens
        ).mean(axis=1)
        quarters = padded.reshape(4, -1).mean(axis=1) / padded.mean()
        assert np.abs(quarters - 1).max() < 0.12


def test_clusters_are_spread_over_time() -> None:
    """Each half of an epoch holds about half of every cluster."""
    cluster = np.repeat(np.arange(8), 100)
    selection = make_selection(cluster, np.full(800, 50))
    for strategy in ("disjoint", "interleaved"):
        grid = first_grid(selection, Shape(800, 4, 1, 1), strategy)
        first_half = np.bincount(cluster[grid[:100].ravel()], minlength=8)
        assert np.abs(first_half - 50).max() <= 5


def test_interleaved_deals_every_cluster_over_all_ranks() -> None:
    selection = random_selection(800, 10, 3)
    grid = first_grid(selection, Shape(800, 4, 1, 1), "interleaved")
    for cluster in range(10):
        held = [(selection.cluster[grid[:, :, r]] == cluster).sum() for r in range(4)]
        assert max(held) - min(held) <= 2


def test_more_ranks_than_clusters() -> None:
    selection = make_selection(np.repeat([0, 1], 50), np.arange(100) + 5)
    grid = first_grid(selection, Shape(100, 8, 1, 1), "disjoint")
    assert sorted(grid[grid >= 0].tolist()) == list(range(100))


def test_unknown_strategy() -> None:
    with pytest.raises(SettingError) as error:
        first_grid(random_selection(4, 2, 0), Shape(4, 2, 1, 1), "fair")
    assert str(error.value) == (
        "there is no strategy 'fair'; use one of disjoint, interleaved, balanced, random"
    )


def test_figures_of_a_plan_worked_out_by_hand() -> None:
    # Two steps, two ranks, micro-batches of two; the last step has two places empty.
    grid = np.array([[[[0, 1], [2, 3]]], [[[4, -1], [5, -1]]]])
    cluster = np.array([0, 0, 1, 2, 3, 3])
    tokens = np.array([10, 20, 30, 10, 5, 7])
    deal = Deal.of_grid(grid)
    assert padded_tokens(deal, tokens).tolist() == [[40, 60], [5, 7]]
    assert figures(deal, cluster, tokens) == {
        "shared_cluster": 0.5,  # the ranks meet on cluster 3 in the second of two steps
        "clusters_per_batch": 2.0,  # {0, 1, 2} and {3}
        "padded_ratio_mean": 1.2,  # 60 over 50; the last step is not full
        "padded_ratio_worst": 1.2,
        "waiting": round(1 - (50 + 6) / (60 + 7), 5),
        "padding": round(1 - 82 / 112, 5),
    }
