"""The number of clusters: what two halves of the data confirm."""

from __future__ import annotations

import numpy as np
import pytest

from stages.cluster.auto import choose, decide, grid, information
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
    [("few", 4, 4), ("some", 13, 20), ("small data", 8, 14), ("diffuse noise", 7, 11)],
)
def test_planted_numbers_are_found(name: str, low: int, high: int) -> None:
    scene = next(scene for scene in SCENES if scene.name == name)
    row_SD, _ = plant(scene, dims=64 if name == "few" else 256, seed=5)
    choice = choose(row_SD, np.ones(len(row_SD)), seed=0)
    assert low <= choice.clusters <= high
    assert choice.reason.startswith(f"{choice.clusters} clusters: maps of two halves of the data ")


def test_noise_is_one_cluster() -> None:
    noise = np.random.default_rng(0).normal(size=(400, 256)).astype(np.float32)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    choice = choose(noise, np.ones(400), seed=0)
    assert choice.clusters == 1
    assert choice.reason == (
        "one cluster: maps of two halves of the data have nothing in common (2 to 33 tried)"
    )
    assert [point["clusters"] for point in choice.curve] == grid(200)


def test_the_search_ends_past_the_peak() -> None:
    scene = next(scene for scene in SCENES if scene.name == "few")
    row_SD, _ = plant(scene, dims=32, seed=0)
    choice = choose(row_SD, np.ones(len(row_SD)), seed=0)
    assert choice.curve[-1]["clusters"] < grid(len(row_SD) // 2)[-1]
    most = max(point["information"] for point in choice.curve)
    assert all(point["information"] < most / 2 for point in choice.curve[-3:])


def test_the_smallest_number_that_keeps_nearly_everything() -> None:
    curve = [{"information": value} for value in (0.1, 1.9, 1.97, 2.0, 1.99)]
    assert decide(curve) == 2


def test_too_few_rows_to_compare() -> None:
    choice = choose(np.eye(4, dtype=np.float32), np.ones(4), seed=0)
    assert (choice.clusters, choice.curve) == (1, [])
    assert choice.reason == "one cluster: 4 examples are too few to compare numbers"


def test_grid_grows_and_stops_at_five_rows_a_cluster() -> None:
    assert grid(9) == []
    assert grid(60) == [2, 3, 4, 5, 7, 10]
    assert grid(3000)[-1] <= 600
