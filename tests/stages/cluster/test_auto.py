"""The number of clusters: what two halves of the data confirm."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from stages.cluster.assign import labels
from stages.cluster.auto import choose, decide, grid, information
from stages.cluster.join import fit_joined
from tests.benchmarks.auto_clusters import SCENES, plant


def test_information_is_what_is_shared_less_what_chance_shares() -> None:
    """Against the definition: the mean over shuffled labels."""
    random = np.random.default_rng(0)
    left = random.integers(0, 4, 60)
    right = np.where(random.random(60) < 0.7, left, random.integers(0, 4, 60))

    def shared(a: np.ndarray, b: np.ndarray) -> float:
        joint = np.histogram2d(a, b, bins=(4, 4))[0] / len(a)
        apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
        inside = joint > 0
        return float((joint[inside] * np.log(joint[inside] / apart[inside])).sum())

    by_chance = np.mean([shared(left, random.permutation(right)) for _ in range(800)])
    assert information(left, right) == pytest.approx(shared(left, right) - by_chance, abs=6e-3)
    assert information(left, np.zeros(60, dtype=int)) == pytest.approx(0, abs=1e-12)


def test_a_fine_split_that_is_confirmed_tells_more_than_a_coarse_one() -> None:
    """The reason for nats: both agree perfectly, an index between 0 and 1 calls them equal."""
    coarse, fine = np.arange(80) // 72, np.arange(80) // 10
    assert information(fine, fine) > 4 * information(coarse, coarse)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("few", 4, 8), ("some", 16, 24), ("small data", 8, 14), ("diffuse noise", 8, 80)],
)
def test_planted_lessons_stay_whole(name: str, low: int, high: int) -> None:
    """The number may be higher, for rows that belong nowhere; the lessons must not be divided."""
    scene = next(scene for scene in SCENES if scene.name == name)
    row_SD, lesson = plant(scene, dims=256, seed=5)
    weight_S, taught = np.ones(len(row_SD)), lesson >= 0
    choice = choose(row_SD, weight_S, seed=0)
    assert low <= choice.clusters <= high
    assert choice.reason.startswith(f"{choice.clusters} clusters: there the maps of two halves ")
    label_S = labels(row_SD, fit_joined(row_SD, weight_S, choice.clusters, seed=0))
    assert adjusted_rand_score(lesson[taught], label_S[taught]) > 0.95


def test_noise_is_one_cluster() -> None:
    noise = np.random.default_rng(0).normal(size=(400, 256)).astype(np.float32)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    choice = choose(noise, np.ones(400), seed=0)
    assert choice.clusters == 1
    assert choice.reason == (
        "one cluster: maps of two halves of the data have nothing in common (2 to 24 tried)"
    )
    assert [point["clusters"] for point in choice.curve] == grid(200 // 8)


def test_the_best_agreement_among_those_that_say_enough() -> None:
    """Two clusters agree perfectly and say little; of two that agree as well the larger is taken."""
    points = [(0.6, 1.0), (1.4, 0.8), (1.9, 0.9), (2.0, 0.895), (2.1, 0.7)]
    curve = [{"information": nats, "agreement": rand} for nats, rand in points]
    assert decide(curve) == 3


def test_too_few_rows_to_compare() -> None:
    choice = choose(np.eye(4, dtype=np.float32), np.ones(4), seed=0)
    assert (choice.clusters, choice.curve) == (1, [])
    assert choice.reason == "one cluster: 4 examples are too few to compare numbers"


def test_grid_grows_and_ends_with_the_fine_clusters() -> None:
    assert grid(1) == []
    assert grid(10) == [2, 3, 4, 5, 6, 8, 10]
    assert grid(600)[-1] <= 600
