"""Projections and sketches keep lengths and angles as theory says, and depend on names alone."""

from __future__ import annotations

import numpy as np
import torch

from stages.score.projections import Fold, projection


def test_columns_are_orthogonal_and_scaled_to_keep_lengths() -> None:
    matrix = projection(100, 20, 0, "layer")
    torch.testing.assert_close(matrix.T @ matrix, torch.eye(20) * 5.0, atol=1e-4, rtol=0)


def test_a_layer_narrower_than_the_rank_is_only_rotated() -> None:
    matrix = projection(8, 20, 0, "layer")
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(8), atol=1e-5, rtol=0)
    assert matrix.shape == (8, 20)


def test_inner_products_are_kept_on_average() -> None:
    """Over many draws the mean of the projected inner product is the true one (unbiased)."""
    rng = np.random.default_rng(0)
    x, y = (torch.from_numpy(rng.standard_normal(40).astype(np.float32)) for _ in range(2))
    draws = torch.stack(
        [(x @ (m := projection(40, 10, seed, "layer"))) @ (y @ m) for seed in range(2000)]
    )
    error = draws.std() / 2000**0.5
    assert abs(draws.mean() - x @ y) < 4 * error


def test_names_and_seed_decide() -> None:
    assert torch.equal(projection(30, 5, 1, "a"), projection(30, 5, 1, "a"))
    assert not torch.equal(projection(30, 5, 1, "a"), projection(30, 5, 1, "b"))
    assert not torch.equal(projection(30, 5, 1, "a"), projection(30, 5, 2, "a"))
    assert not torch.equal(projection(30, 5, 1, "a", "b"), projection(30, 5, 1, "ab"))


def test_a_fold_without_collisions_keeps_lengths_exactly() -> None:
    fold = Fold.draw(64, 64, 0, "layer", "cpu")
    values = torch.randn(3, 64)
    total = torch.zeros(3, 64)
    fold.add(total, values)
    torch.testing.assert_close(total.norm(dim=1), values.norm(dim=1))


def test_a_fold_fills_buckets_evenly_and_adds_up() -> None:
    fold = Fold.draw(256, 64, 0, "layer", "cpu")
    assert np.bincount(fold.bucket.numpy(), minlength=64).tolist() == [4] * 64
    total = torch.zeros(1, 64)
    fold.add(total, torch.ones(1, 256))
    fold.add(total, torch.ones(1, 256))
    single = torch.zeros(1, 64)
    fold.add(single, torch.ones(1, 256))
    torch.testing.assert_close(total, 2 * single)


def test_fewer_entries_than_numbers_kept_never_collide() -> None:
    fold = Fold.draw(16, 64, 0, "layer", "cpu")
    assert len(set(fold.bucket.tolist())) == 16
