"""What holds of every plan: random selections, ranks, batch shapes, ragged lengths, all strategies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.allocation import Allocation
from formats.selection import Selection, read_selection
from stages.allocate import allocate
from stages.allocate.apart import unavoidable_meetings
from stages.allocate.deal import Deal
from stages.allocate.report import figures, padded_tokens
from stages.allocate.shape import Shape
from stages.allocate.strategies import STRATEGIES, plan
from stages.select import select
from tests.stages.allocate.test_plan import make_selection, vectors_of
from tests.synthetic import write_clusters


@st.composite
def selections(draw: st.DrawFn, most: int = 120) -> Selection:
    """Sizes and lengths from even to extremely uneven."""
    count, clusters = draw(st.integers(1, most)), draw(st.integers(1, 15))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    share = random.lognormal(0, draw(st.sampled_from([0.0, 1.0, 3.0])), clusters)
    cluster = random.choice(clusters, count, p=share / share.sum())
    spread = draw(st.sampled_from([0.0, 0.5, 2.0]))
    tokens = np.clip(random.lognormal(4, spread, count), 1, 1024)
    return make_selection(cluster, tokens)


RANKS = st.one_of(st.integers(1, 9), st.integers(1, 9), st.sampled_from([64, 4096]))
SHAPES = st.tuples(RANKS, st.integers(1, 5), st.integers(1, 4))


def deals(selection: Selection, shape: Shape, strategy: str, **more: Any) -> list[Deal]:
    """Two epochs."""
    vectors = vectors_of(selection)
    how = {"seed": 3, "rotate": False, **more}
    return list(plan(selection, shape, strategy, epochs=2, vectors=vectors, **how))


@settings(max_examples=50, deadline=None)
@given(selections(), SHAPES, st.sampled_from(STRATEGIES), st.booleans())
def test_every_example_once_and_every_rank_alike(
    selection: Selection, sizes: tuple[int, int, int], strategy: str, rotate: bool
) -> None:
    ranks, micro_batch, accumulation = sizes
    count = len(selection)
    shape = Shape(count, ranks, micro_batch, accumulation)
    for deal in deals(selection, shape, strategy, rotate=rotate):
        assert sorted(deal.example.tolist()) == list(range(count))
        steps = -(-count // shape.batch)  # so many micro-batches for every rank, full or not
        assert deal.rows.shape == (steps, accumulation, ranks)
        assert (deal.rows[: count // shape.batch] == micro_batch).all()
        # The last step is shared: micro-batches fill up one after the other, no rank has two rows more.
        assert (np.diff(deal.rows[-1], axis=0) <= 0).all()
        assert deal.rows.max() <= micro_batch
        of_rank = deal.rows[-1].sum(axis=0)
        assert of_rank.max() - of_rank.min() <= 1


@settings(max_examples=40, deadline=None)
@given(
    selections(),
    st.one_of(st.integers(1, 9), st.just(64)),
    st.integers(1, 4),
    st.integers(1, 3000),
    st.sampled_from(STRATEGIES),
)
def test_a_budget_is_never_exceeded_but_by_a_single_row(
    selection: Selection, ranks: int, accumulation: int, budget: int, strategy: str
) -> None:
    shape = Shape(len(selection), ranks, 1, accumulation)
    made = deals(selection, shape, strategy, budget=budget)
    assert made[0].rows.shape == made[1].rows.shape  # as many steps in every epoch
    for deal in made:
        assert sorted(deal.example.tolist()) == list(range(len(selection)))
        assert deal.rows.shape[1:] == (accumulation, ranks)
        padded = deal.longest(selection.tokens) * deal.rows
        assert ((padded <= budget) | (deal.rows <= 1)).all()


@settings(max_examples=40, deadline=None)
@given(selections(), SHAPES)
def test_meetings_are_those_that_cannot_be_avoided(
    selection: Selection, sizes: tuple[int, int, int]
) -> None:
    """With one row of a rank in a step the rule is exact: a cluster needs as many steps as it has rows,
    and those that need the last one too, partly filled, must find a place in it (McNaughton 1959)."""
    # Of thousands of ranks one pair that meets is a chance that the report rounds to nothing.
    shape = Shape(len(selection), sizes[0] % 70 + 1, 1, 1)
    deal = next(plan(selection, shape, "disjoint", epochs=1, seed=0, rotate=False))
    met = figures(deal, selection.cluster, selection.tokens)["shared_cluster"]
    full, last = divmod(len(selection), shape.ranks)
    size = np.bincount(selection.cluster)
    can_do = size.max() <= full + 1 and (size > full).sum() <= last
    assert (met == 0) == (can_do or shape.ranks == 1)
    if not last:
        assert met >= unavoidable_meetings(selection.cluster, shape) - 1e-6


@settings(max_examples=40, deadline=None)
@given(selections(60), SHAPES, st.sampled_from(STRATEGIES), st.sampled_from([0, 500]))
def test_the_report_is_what_recounting_gives(
    selection: Selection, sizes: tuple[int, int, int], strategy: str, budget: int
) -> None:
    ranks, micro_batch, accumulation = sizes[0] % 70 + 1, sizes[1], sizes[2]
    shape = Shape(len(selection), ranks, 1 if budget else micro_batch, accumulation)
    deal = deals(selection, shape, strategy, budget=budget)[0]
    grid, cluster, tokens = deal.grid(), selection.cluster, selection.tokens
    padded, held, real = [], [], 0
    for step in grid:
        rows = [[[e for e in unit[r] if e >= 0] for unit in step] for r in range(ranks)]
        padded.append([sum(len(u) * max(tokens[u]) for u in of if u) for of in rows])
        held.append([{int(cluster[e]) for u in of for e in u} for of in rows])
        real += sum(int(tokens[e]) for of in rows for u in of for e in u)
    found = figures(deal, cluster, tokens)
    assert padded_tokens(deal, tokens).tolist() == padded
    together = [a & b for of in held for i, a in enumerate(of) for b in of[:i]]
    shared = sum(map(bool, together)) / len(together) if together else 0.0
    assert found["shared_cluster"] == round(shared, 6)
    assert found["clusters_per_batch"] == round(np.mean([len(set().union(*of)) for of in held]), 3)
    assert found["padding"] == round(1 - real / np.sum(padded), 5)
    waiting = 1 - sum(map(np.mean, padded)) / sum(map(max, padded))
    assert abs(found["waiting"] - waiting) < 1e-5


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(1, 5),
    st.sampled_from([1, 2, 3, 7, 64]),
    st.sampled_from(STRATEGIES[:2] + STRATEGIES[3:]),
    st.sampled_from([{"micro_batch": 3}, {"max_tokens_per_micro_batch": 200}]),
)
def test_files_hold_exactly_the_selection(
    tmp_path_factory: Any, count: int, clusters: int, ranks: int, strategy: str, how: dict[str, int]
) -> None:
    folder: Path = tmp_path_factory.mktemp("plan")
    random = np.random.default_rng(count)
    label = np.concatenate([np.arange(clusters), random.integers(0, clusters, 80)])
    write_clusters(folder / "c.zarr", label, tokens=random.integers(1, 150, len(label)))
    select(folder / "c.zarr", folder / "s.jsonl", count=count, weights=True)
    allocate(
        folder / "s.jsonl",
        folder / "a",
        ranks=ranks,
        strategy=strategy,
        accumulation=2,
        epochs=2,
        **how,
    )
    selection, allocation = read_selection(folder / "s.jsonl"), Allocation.open(folder / "a")
    expected = Counter(
        (epoch, *facts)
        for epoch in range(2)
        for facts in zip(
            selection.row.tolist(),
            [bytes(each).hex() for each in selection.id],
            selection.weight.tolist(),
            selection.cluster.tolist(),
            selection.tokens.tolist(),
            strict=True,
        )
    )
    found: Counter[Any] = Counter()
    for rank in range(ranks):
        batches = list(allocation.rank(rank))
        assert len(batches) == allocation.steps * 2
        for batch in batches:
            columns = (batch.rows, batch.ids, batch.weights, batch.clusters, batch.tokens)
            found.update((batch.epoch, *facts) for facts in zip(*columns, strict=True))
    assert found == expected
    if "micro_batch" in how:
        assert allocation.batch == ranks * 2 * 3
    else:
        assert allocation.batch == len(selection) / allocation.steps_per_epoch
