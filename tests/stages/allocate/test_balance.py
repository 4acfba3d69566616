"""Ranks that never meet on a cluster and never wait: both at once, wherever both are possible."""

from __future__ import annotations

import numpy as np
import pytest

from formats.selection import Selection
from stages.allocate.apart import unavoidable_meetings
from stages.allocate.report import figures, in_signature_space, padded_tokens, shared_cluster
from stages.allocate.shape import Shape
from stages.allocate.strategies import plan
from tests.stages.allocate.test_plan import first_deal, make_selection, vectors_of

SHAPES = [(ranks, micro, steps) for ranks in (4, 8) for micro in (1, 4) for steps in (1, 4)]


def medical(clusters: int, rows: int = 2400, seed: int = 0, uneven: float = 0.0) -> Selection:
    """Lengths as medical answers have them: lognormal around 220 tokens, cut at 1,024."""
    random = np.random.default_rng(seed)
    share = random.lognormal(0, uneven, clusters)
    cluster = random.choice(clusters, rows, p=share / share.sum()) if uneven else None
    tokens = np.clip(random.lognormal(np.log(220), 0.7, rows), 8, 1024)
    return make_selection(np.arange(rows) % clusters if cluster is None else cluster, tokens)


@pytest.mark.parametrize(("ranks", "micro_batch", "accumulation"), SHAPES)
def test_padded_tokens_stay_within_three_percent(
    ranks: int, micro_batch: int, accumulation: int
) -> None:
    """The figure the project promises, with room to spare beside a shuffle."""
    selection, shape = medical(100), Shape(2400, ranks, micro_batch, accumulation)
    ours = figures(first_deal(selection, shape, "disjoint"), selection.cluster, selection.tokens)
    chance = figures(first_deal(selection, shape, "random"), selection.cluster, selection.tokens)
    assert ours["padded_ratio_mean"] <= 1.03 < 1.2 < chance["padded_ratio_mean"]
    assert ours["shared_cluster"] == 0 < chance["shared_cluster"]


@pytest.mark.parametrize("uneven", [0.8, 1.5])
@pytest.mark.parametrize("ranks", [4, 8])
def test_uneven_clusters_are_kept_apart_too(ranks: int, uneven: float) -> None:
    for seed in range(3):
        selection, shape = medical(40, 600, seed, uneven), Shape(600, ranks, 1, 1)
        deal = first_deal(selection, shape, "disjoint", seed)
        met = shared_cluster(deal, selection.cluster)
        assert met == pytest.approx(unavoidable_meetings(selection.cluster, shape), abs=0.001)
        if not met:
            longest = padded_tokens(deal, selection.tokens).max(axis=1).sum()
            assert longest <= 1.04 * least_tokens(selection, ranks)


def least_tokens(selection: Selection, ranks: int) -> float:
    """No plan with one row of a rank in a step, ranks kept apart, has a smaller sum over steps of the
    longest row: rows longer than some length take as many steps as any one cluster has of them, and a
    step takes one from each rank."""
    total = 0.0
    for length in range(int(selection.tokens.max())):
        longer = np.bincount(selection.cluster[selection.tokens > length])
        total += max(longer.max(), -(-longer.sum() // ranks))
    return total


def test_unavoidable_meetings_worked_out_by_hand() -> None:
    # 4 ranks, 10 steps: the cluster of 25 is on 2 ranks always and on a third in half of the steps,
    # which makes 1 pair always, and 2 more in half of the steps: 2 of 6.
    cluster = np.repeat([0, 1, 2], [25, 10, 5])
    assert unavoidable_meetings(cluster, Shape(40, 4, 1, 1)) == pytest.approx(2 / 6)
    assert unavoidable_meetings(cluster, Shape(40, 1, 1, 1)) == 0
    deal = first_deal(make_selection(cluster, np.full(40, 9)), Shape(40, 4, 1, 1), "disjoint")
    assert shared_cluster(deal, cluster) == pytest.approx(2 / 6)


def test_waiting_is_the_least_possible() -> None:
    """One cluster holds all long rows, so one rank has one in every step until they are used up: no plan
    that keeps clusters apart can do better than this, and ours is as good."""
    cluster = np.repeat([0, 1, 2, 3], 50)
    tokens = np.where(cluster == 0, 1000, 100)
    deal = first_deal(make_selection(cluster, tokens), Shape(200, 4, 1, 1), "disjoint")
    assert shared_cluster(deal, cluster) == 0
    assert padded_tokens(deal, tokens).max(axis=1).sum() == 50 * 1000
    # Two such clusters of half the size go hand in hand.
    cluster = np.repeat(np.arange(8), 25)
    tokens = np.where(cluster < 2, 1000, 100)
    deal = first_deal(make_selection(cluster, tokens), Shape(200, 4, 1, 1), "disjoint")
    assert shared_cluster(deal, cluster) == 0
    assert padded_tokens(deal, tokens).max(axis=1).sum() == 25 * 1000 + 25 * 100


def test_ranks_point_in_other_directions() -> None:
    selection, shape = medical(40, 800), Shape(800, 4, 2, 1)
    vectors = vectors_of(selection)
    cosine = {
        name: in_signature_space(first_deal(selection, shape, name), vectors, selection.weight)[
            "rank_cosine"
        ]
        for name in ("disjoint", "random")
    }
    assert cosine["disjoint"] < cosine["random"] - 0.005


def test_owners_keep_nearly_all_when_lengths_allow() -> None:
    selection, shape = medical(100), Shape(2400, 4, 1, 1)
    (first, second) = plan(selection, shape, "disjoint", epochs=2, seed=0, rotate=False)
    held = [np.zeros((100, 4)) for _ in range(2)]
    for deal, table in zip((first, second), held, strict=True):
        np.add.at(table, (selection.cluster[deal.example], deal.step_rank()[1]), 1)
        assert table.max(axis=1).sum() > 0.95 * 2400
    assert (held[0].argmax(axis=1) == held[1].argmax(axis=1)).all()
