"""k-means on the sphere: exact sums, rounds that improve, seeds that last."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.cluster.assign import labels, middles, nearest, sums
from stages.cluster.fit import fit
from tests.synthetic import lessons


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 5))
def test_sums_are_the_same_in_any_order_and_any_parts(seed: int, rows: int, clusters: int) -> None:
    random = np.random.default_rng(seed)
    row_BD = unit(random.normal(size=(rows, 7)))
    weight_B, label_B = random.integers(1, 1000, rows), random.integers(0, clusters, rows)
    whole = sums(row_BD, weight_B, label_B, clusters)
    order, cut = random.permutation(rows), int(random.integers(0, rows + 1))
    parts = [
        sums(row_BD[part], weight_B[part], label_B[part], clusters)
        for part in (order[:cut], order[cut:])
    ]
    assert whole.tobytes() == (parts[1] + parts[0]).tobytes()
    for cluster in range(clusters):  # against numpy, to the fineness of the grid
        own = label_B == cluster
        expected = (weight_B[own, None] * row_BD[own].astype(float)).sum(axis=0)
        np.testing.assert_allclose(whole[cluster] / 2**24, expected, atol=1e-7 * weight_B.sum())


def test_middles_are_unit_and_keep_what_lost_its_rows() -> None:
    before = np.eye(3, dtype=np.float32)
    found = middles(np.array([[3.0, 4, 0], [0, 0, 0], [0, 0, -2]]), before)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [[0.6, 0.8, 0], [0, 1, 0], [0, 0, -1]], atol=1e-7)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_every_round_brings_rows_nearer(seed: int) -> None:
    """Lloyd's rounds never lower the weighted similarity, beyond rounding."""
    random = np.random.default_rng(seed)
    row_SD, weight_S = unit(random.normal(size=(80, 6))), random.integers(1, 5, 80)
    reached = []
    for iterations in (1, 2, 4, 8, 16):
        centroid_KD = fit(row_SD, weight_S, 5, seed, iterations=iterations)
        reached.append(float(weight_S @ nearest(row_SD, centroid_KD)[1]))
    assert (np.diff(reached) > -1e-4).all()


def test_the_best_of_several_starts_is_kept() -> None:
    row_SD = unit(np.random.default_rng(1).normal(size=(60, 5)))
    weight_S = np.ones(60)
    alone = [nearest(row_SD, fit(row_SD, weight_S, 6, seed))[1].sum() for seed in range(4)]
    assert len(set(alone)) > 1
    best = nearest(row_SD, fit(row_SD, weight_S, 6, 0, tries=4))[1].sum()
    assert best == max(alone)


def test_a_start_keeps_its_numbers_and_its_empty_centroids() -> None:
    rows, lesson = lessons([40, 30, 20], dims=8, noise=0.2)
    row_SD = unit(rows)
    means = unit(np.stack([rows[lesson == number].mean(axis=0) for number in range(3)]))
    lonely = -means.sum(axis=0, keepdims=True) / np.linalg.norm(means.sum(axis=0))
    start = np.concatenate([means, lonely]).astype(np.float32)
    found = fit(row_SD, np.ones(90), 4, 0, start=start)
    assert labels(row_SD, found).tolist() == lesson.tolist()
    assert found[3].tolist() == start[3].tolist()
    few = fit(row_SD[:3], np.ones(3), 4, 0, start=start)
    assert few.tobytes() == start.tobytes()


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_rows_without_direction_still_give_unit_centroids(rows: int) -> None:
    """A single example is its own centre: nothing is left of it."""
    found = fit(np.zeros((rows, 4), dtype=np.float32), np.ones(rows), 3, 0)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
