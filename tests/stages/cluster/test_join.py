"""Clusters joined from finer ones: large lessons stay whole, small ones stay apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.metrics import adjusted_rand_score

from stages.cluster.assign import labels
from stages.cluster.fit import fit
from stages.cluster.join import Tree, fine_number, fit_joined, narrow


def unequal(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A lesson of 1,500 rows in five wordings, and six lessons of 60; unit rows of 64 numbers."""
    random = np.random.default_rng(seed)
    wording = 0.7 * random.normal(size=(5, 64))
    large = random.normal(size=64) * 2 + wording[random.integers(0, 5, 1500)]
    small = np.repeat(random.normal(size=(6, 64)) * 2, 60, axis=0)
    rows = np.concatenate([large, small]) + 0.5 * random.normal(size=(1860, 64))
    lesson = np.concatenate([np.zeros(1500, dtype=int), np.repeat(np.arange(1, 7), 60)])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), lesson


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_lessons_of_unequal_sizes_are_found_where_k_means_divides_the_large_one(seed: int) -> None:
    row_SD, lesson = unequal(seed)
    weight_S = np.ones(len(row_SD))
    joined = labels(row_SD, fit_joined(row_SD, weight_S, 7, seed))
    plain = labels(row_SD, fit(row_SD, weight_S, 7, seed, tries=4))
    assert adjusted_rand_score(lesson, joined) > 0.98
    assert adjusted_rand_score(lesson, plain) < 0.9


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 30))
def test_the_cut_is_that_of_scipy(seed: int, clusters: int) -> None:
    fine_FN = np.random.default_rng(seed).normal(size=(30, 5)).astype(np.float32)
    theirs = fcluster(linkage(fine_FN.astype(float), "average"), clusters, "maxclust")
    ours = Tree(fine_FN).cut(clusters)
    assert len(np.unique(ours)) == clusters
    if len(np.unique(theirs)) == clusters:
        assert adjusted_rand_score(theirs, ours) == 1


def test_few_rows_are_left_to_k_means() -> None:
    row_SD, _ = unequal(0)
    part_SD, weight_S = row_SD[::20].copy(), np.ones(93)
    assert fine_number(93, 7) < 14
    joined = fit_joined(part_SD, weight_S, 7, 3, tries=2)
    assert joined.tobytes() == fit(part_SD, weight_S, 7, 3, tries=2).tobytes()


def test_fine_clusters_are_four_for_each_and_one_for_32_rows_within_bounds() -> None:
    assert fine_number(10_000, 10) == 512
    assert fine_number(10_000, 200) == 800
    assert fine_number(10_000, 1_000) == 1_024
    assert fine_number(50_000, 10) == 1_562
    assert fine_number(800, 100) == 100


def test_rows_that_repeat_have_fewer_clusters_than_asked_for() -> None:
    row_SD = np.repeat(np.eye(3, 8, dtype=np.float32), 400, axis=0)
    found = fit_joined(row_SD, np.ones(1200), 5, 0)
    assert sorted(found.argmax(axis=1).tolist()) == [0, 1, 2]


def test_narrow_rows_keep_their_cosines() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(40, 2048)) + random.normal(size=2048)
    row_SD = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    narrow_SN = narrow(row_SD, seed=1)
    assert narrow_SN.shape == (40, 512)
    np.testing.assert_allclose(np.linalg.norm(narrow_SN, axis=1), 1, rtol=1e-5)
    assert np.abs(narrow_SN @ narrow_SN.T - row_SD @ row_SD.T).max() < 5 / np.sqrt(512)
    few_SD = row_SD[:, :300]
    assert narrow(few_SD, seed=1) is few_SD
