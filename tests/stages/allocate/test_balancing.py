"""``balanced``: every global batch like the whole selection."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from formats.allocation import Allocation
from formats.errors import ArtifactError, SettingError
from formats.selection import Selection, read_selection
from stages.allocate import allocate
from stages.allocate.balancing import balance, deviations
from stages.allocate.deal import Deal
from stages.allocate.report import figures, in_signature_space, padded_tokens, shared_cluster
from stages.allocate.shape import Shape
from stages.allocate.strategies import plan
from stages.allocate.timing import Timed
from stages.allocate.vectors import load
from stages.cluster import cluster
from stages.select import select
from tests.stages.allocate.test_invariants import SHAPES, selections
from tests.stages.allocate.test_plan import make_selection, vectors_of
from tests.synthetic import PUBLISHED, Notes, lessons, write_signatures


def vectors_and_selection(count: int = 480) -> tuple[np.ndarray, object]:
    rows, lesson = lessons([count // 12] * 12, dims=16, noise=1.0)
    unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit, make_selection(lesson, np.full(count, 50))


def first(strategy: str, vectors: np.ndarray, selection: object, shape: Shape) -> Deal:
    plans = plan(
        selection,  # type: ignore[arg-type]
        shape,
        strategy,
        epochs=1,
        seed=0,
        rotate=False,
        vectors=vectors,
    )
    return next(plans)


@pytest.mark.parametrize("shape", [Shape(480, 4, 2, 2), Shape(470, 3, 4, 1), Shape(480, 1, 8, 1)])
def test_batches_vary_less_than_in_any_other_plan(shape: Shape) -> None:
    vectors, selection = vectors_and_selection()
    chosen = make_selection(selection.cluster[: shape.examples], np.full(shape.examples, 50))  # type: ignore[attr-defined]
    vectors = vectors[: shape.examples]
    weight = np.ones(shape.examples)
    variance = {}
    for strategy in ("disjoint", "balanced", "random"):
        deal = first(strategy, vectors, chosen, shape)
        assert sorted(deal.example.tolist()) == list(range(shape.examples))
        variance[strategy] = in_signature_space(deal, vectors, weight)["batch_variance"]
    assert variance["balanced"] < 0.5 * variance["random"]
    assert variance["balanced"] < variance["disjoint"] < 1.1 * variance["random"]


def test_it_stays_disjoint_and_matched() -> None:
    vectors, selection = vectors_and_selection()
    tokens = np.random.default_rng(0).integers(20, 300, 480)
    chosen = make_selection(selection.cluster, tokens)  # type: ignore[attr-defined]
    shape = Shape(480, 4, 1, 2)
    deal = first("balanced", vectors, chosen, shape)
    found = figures(deal, chosen.cluster, tokens)
    assert found["shared_cluster"] == 0
    assert found["padded_ratio_mean"] < 1.03
    rank_cosine = in_signature_space(deal, vectors, np.ones(480))["rank_cosine"]
    chance = first("random", vectors, chosen, shape)
    assert rank_cosine < in_signature_space(chance, vectors, np.ones(480))["rank_cosine"]


def uneven(deal: Deal, away: np.ndarray) -> float:
    """The sum over steps of the squared length of each step's sum."""
    step, _ = deal.step_rank()
    sums = np.zeros((len(deal.rows), away.shape[1]))
    np.add.at(sums, step, away[deal.example])
    return float((sums**2).sum())


@settings(max_examples=60, deadline=None)
@given(selections(), SHAPES, st.sampled_from([0, 0, 300, 2000]), st.integers(0, 9))
def test_exchanges_spoil_nothing(
    selection: Selection, sizes: tuple[int, int, int], budget: int, seed: int
) -> None:
    """Beside the disjoint plan that it begins with: the same owners and rows, not a meeting more, no
    step that waits longer (beyond 2 %), and steps that resemble the whole no less."""
    ranks, micro_batch, accumulation = sizes[0] % 70 + 1, sizes[1], sizes[2]
    shape = Shape(len(selection), ranks, 1 if budget else micro_batch, accumulation)
    vectors = vectors_of(selection)
    before, after = (
        next(
            plan(
                selection,
                shape,
                strategy,
                epochs=1,
                seed=seed,
                rotate=False,
                vectors=vectors,
                budget=budget,
            )
        )
        for strategy in ("disjoint", "balanced")
    )
    assert after.rows.tolist() == before.rows.tolist()
    owners = [deal.step_rank()[1][np.argsort(deal.example)].tolist() for deal in (before, after)]
    assert owners[0] == owners[1]
    assert shared_cluster(after, selection.cluster) <= shared_cluster(before, selection.cluster)
    padded = [padded_tokens(deal, selection.tokens) for deal in (before, after)]
    ratio = [each.max(axis=1) / each.mean(axis=1) for each in padded]
    assert (ratio[1] <= np.maximum(ratio[0], 1.02) + 1e-12).all()
    away = deviations(vectors, selection.weight, np.random.default_rng(0))
    assert uneven(after, away) <= uneven(before, away) * (1 + 1e-5) + 1e-6


def test_an_exchange_worked_out_by_hand() -> None:
    """Steps (1, 1) and (-1, -1) of one number: after one exchange both have the mean, and none is left
    to make. Beyond the lengths a place takes there is none at all."""
    for tokens, expected in (([50, 50, 50, 50], 0.0), ([50, 50, 80, 80], 8.0)):
        away = np.array([[1.0], [1.0], [-1.0], [-1.0]], dtype=np.float32)
        timed = Timed(np.array([0, 0, 1, 1]), np.zeros(4, dtype=np.int64), 2)
        balance(
            timed, np.arange(4), np.array(tokens), away, Shape(4, 1, 2, 1), np.random.default_rng(0)
        )
        sums = [away[timed.unit == unit].sum() for unit in (0, 1)]
        assert sum(float(each) ** 2 for each in sums) == expected
        assert np.bincount(timed.unit).tolist() == [2, 2]


def test_no_exchange_makes_ranks_meet() -> None:
    """Each exchange that helps would put cluster 0 on both ranks in one step."""
    unit, rank = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    away = np.array([[1.0], [1.0], [-1.0], [-1.0]], dtype=np.float32)
    tokens = np.full(4, 50)
    for held, moved in (([0, 1, 1, 0], False), ([0, 1, 2, 3], True)):
        timed = Timed(unit.copy(), rank, 2)
        balance(timed, np.array(held), tokens, away, Shape(4, 2, 1, 1), np.random.default_rng(0))
        assert (timed.unit.tolist() != unit.tolist()) == moved


def test_figures_worked_out_by_hand() -> None:
    deal = Deal.of_grid(np.array([[[[0], [1]]], [[[2], [-1]]]]))
    vectors = np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32)
    found = in_signature_space(deal, vectors, np.array([1.5, 0.5, 1.0]))
    # The whole: (2.5, 0.5) / 3; the one full batch: (1.5, 0.5) / 2. All share (2, 1) / 3, without which its
    # ranks are (1, -1) / 3 and (-2, 2) / 3.
    assert found["rank_cosine"] == pytest.approx(-1)
    expected = (2.5 / 3 - 0.75) ** 2 + (0.5 / 3 - 0.25) ** 2
    assert found["batch_variance"] == pytest.approx(expected)


def test_long_vectors_are_projected() -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(50, 2000)).astype(np.float32)
    away = deviations(vectors, np.ones(50), random)
    assert away.shape == (50, 512)
    assert np.abs(away.mean(axis=0)).max() < 1e-4
    full = vectors - vectors.mean(axis=0)
    ratio = np.linalg.norm(away, axis=1) / np.linalg.norm(full, axis=1)
    assert 0.85 < ratio.min() < ratio.max() < 1.15


def test_the_same_plan_with_one_thread_and_two() -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(400, 1536)).astype(np.float32)
    selection = make_selection(random.integers(0, 20, 400), random.integers(20, 200, 400))
    made = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            made.append(first("balanced", vectors, selection, Shape(400, 4, 2, 2)).example.tolist())
    assert made[0] == made[1]


def test_balanced_needs_vectors() -> None:
    _, selection = vectors_and_selection()
    with pytest.raises(SettingError, match="balanced needs signatures; use another strategy"):
        first("balanced", None, selection, Shape(480, 2, 1, 1))  # type: ignore[arg-type]


def chain(folder: Path) -> Path:
    rows, _ = lessons([100, 100, 100, 100], dims=8, noise=0.6)
    write_signatures(folder / "signatures.zarr", rows)
    cluster(folder / "signatures.zarr", folder / "clusters.zarr", clusters=4)
    select(folder / "clusters.zarr", folder / "selection.jsonl", count=240, **PUBLISHED)
    return folder / "selection.jsonl"


def test_the_stage_finds_the_signatures(tmp_path: Path) -> None:
    header = allocate(
        chain(tmp_path),
        tmp_path / "a",
        ranks=2,
        strategy="balanced",
        micro_batch=4,
        accumulation=2,
    )
    assert header.stats["plan"]["batch_variance"] < 0.75 * header.stats["random"]["batch_variance"]
    rows = [
        row
        for rank in range(2)
        for batch in Allocation.open(tmp_path / "a").rank(rank)
        for row in batch.rows
    ]
    assert len(rows) == len(set(rows)) == 240


def test_other_plans_are_measured_when_signatures_are_given(tmp_path: Path) -> None:
    path = chain(tmp_path)
    plain = allocate(path, tmp_path / "a", ranks=2)
    measured = allocate(path, tmp_path / "b", ranks=2, signatures=tmp_path / "signatures.zarr")
    assert "rank_cosine" not in plain.stats["plan"]
    assert measured.stats["plan"]["rank_cosine"] < measured.stats["random"]["rank_cosine"]
    assert measured.key != plain.key


def test_steps_of_one_length_are_told(tmp_path: Path) -> None:
    """Rows point where their length says: with one micro-batch a step, all rows of a step do."""
    random = np.random.default_rng(0)
    tokens = np.repeat([20, 80, 320, 600], 100)
    rows = np.eye(8)[np.repeat(np.arange(4), 100)] + 0.3 * random.normal(size=(400, 8))
    write_signatures(tmp_path / "signatures.zarr", rows, tokens=tokens)
    cluster(tmp_path / "signatures.zarr", tmp_path / "clusters.zarr", clusters=20)
    path = tmp_path / "selection.jsonl"
    select(tmp_path / "clusters.zarr", path, count=240, **PUBLISHED)
    for accumulation, strategy, other in (
        (1, "disjoint", ", or --strategy balanced"),
        (1, "balanced", ""),
        (4, "disjoint", None),
        (1, "random", None),
    ):
        said = Notes()
        header = allocate(
            path,
            tmp_path / f"{strategy}{accumulation}",
            ranks=2,
            strategy=strategy,
            micro_batch=8 // accumulation,
            accumulation=accumulation,
            signatures=tmp_path / "signatures.zarr",
            reporter=said,
        )
        ours, chance = (header.stats[name]["batch_variance"] for name in ("plan", "random"))
        expected = (
            f"steps resemble the selection less than a shuffle's (variance {ours / chance:.1f} times), "
            "because each holds rows of one length; smaller micro-batches with --accumulation 4 mix "
            f"lengths{other}"
        )
        assert [text for text in said.warnings if "shuffle" in text] == [expected] * (
            other is not None
        )


def test_lost_and_wrong_signatures(tmp_path: Path) -> None:
    path = chain(tmp_path)
    other = write_signatures(tmp_path / "other.zarr", lessons([5, 5])[0])
    with pytest.raises(ArtifactError) as error:
        allocate(path, tmp_path / "a", ranks=2, strategy="balanced", signatures=other)
    assert str(error.value) == (
        f"{other} does not hold every example of {path}; "
        "name the signatures it was selected from with --signatures"
    )
    (tmp_path / "signatures.zarr").rename(tmp_path / "moved.zarr")
    with pytest.raises(ArtifactError) as error:
        allocate(path, tmp_path / "a", ranks=2, strategy="balanced")
    assert str(error.value) == (
        f"the signatures behind {path} are not at {tmp_path / 'signatures.zarr'}; "
        "say where they are with --signatures"
    )
    (tmp_path / "clusters.zarr").rename(tmp_path / "gone.zarr")
    with pytest.raises(ArtifactError) as error:
        allocate(path, tmp_path / "a", ranks=2, strategy="balanced")
    assert str(error.value) == (
        f"{path} does not lead to its signatures (its cluster map is gone); "
        "say where they are with --signatures"
    )


def test_what_does_not_fit_into_memory_is_projected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _ = lessons([30, 30], dims=1024, noise=0.3)
    signatures = write_signatures(tmp_path / "signatures.zarr", rows)
    cluster(signatures, tmp_path / "clusters.zarr", clusters=2)
    select(tmp_path / "clusters.zarr", tmp_path / "selection.jsonl", count=40, **PUBLISHED)
    chosen = read_selection(tmp_path / "selection.jsonl")
    whole = load(chosen, None)
    monkeypatch.setattr("stages.allocate.vectors.MEMORY", 40 * 512 * 4)
    short = load(chosen, None)
    assert (whole.shape, short.shape) == ((40, 1024), (40, 512))
    assert np.abs(whole @ whole.T - short @ short.T).max() < 0.25
    monkeypatch.setattr("stages.allocate.vectors.MEMORY", 40 * 512 * 4 - 1)
    with pytest.raises(SettingError) as error:
        load(chosen, None)
    assert str(error.value) == (
        "the signatures of the selection take 0.0 GiB, more than 0; use --strategy disjoint"
    )
