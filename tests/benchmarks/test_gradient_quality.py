"""The measurement of plans: what it computes is what its definition says, on a model of 30,000 weights."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest

from stages.allocate.deal import Deal
from tests import prepared


def quality() -> Any:
    """The script as a module; it loads torch."""
    from tests.benchmarks import gradient_quality

    return gradient_quality


def test_variance_from_inner_products_is_the_variance() -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(23, 40_000)).astype(np.float32)
    order = np.full(24, -1)
    order[:23] = random.permutation(23)
    deal = Deal.of_grid(order.reshape(4, 1, 2, 3))
    batches = [vectors[order[i : i + 6]].mean(axis=0) for i in (0, 6, 12)]  # the fourth is not full
    expected = np.mean([((b - vectors.mean(axis=0)) ** 2).sum() for b in batches])
    found = quality().step_variance(deal, quality().products(vectors))
    assert found == pytest.approx(expected, rel=1e-4)


def test_steps_to_a_loss() -> None:
    curve = [(0, 3.0), (4, 2.0), (8, 2.5), (10, 1.0)]
    assert quality().steps_to(curve, 2.5) == 2
    assert quality().steps_to(curve, 1.5) == pytest.approx(8 + 2 * (1.0 / 1.5))
    assert quality().steps_to(curve, 0.5) is None


def test_the_whole_script(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    work = prepared.untouched(tmp_path_factory)
    output = tmp_path_factory.mktemp("quality") / "q.json"
    line = f"{work}/work/selection.jsonl --model {work}/model --ranks 2 --batches 4 --seeds 2"
    more = f"--train-seeds 1 --epochs 1 --every 3 --learning-rate 1e-3 -o {output}"
    torch.set_num_threads(1)  # threads cost more than they bring on a model this small
    monkeypatch.setattr(sys, "argv", ["gradient_quality.py", *line.split(), *more.split()])
    quality().main()
    record = json.loads(output.read_text())
    names = ["disjoint", "interleaved", "balanced", "random"]
    for space in ("signatures", "exact"):
        assert [each["strategy"] for each in record[space]] == names
        assert record[space][-1]["variance"] == pytest.approx(1)
        assert all(len(each["by_seed"]) == 2 for each in record[space])
    training = record["training"]
    assert sorted(each["strategy"] for each in training["results"]) == sorted(names)
    for each in training["results"]:
        (curve,) = each["curves"]
        assert curve[-1][1] < curve[0][1]
        if each["strategy"] == "random":
            assert training["target"] == curve[-1][1]
            assert (
                each["steps"] == [pytest.approx(curve[-1][0])] or each["steps"][0] <= curve[-1][0]
            )


def test_exact_gradients_that_do_not_fit(tmp_path_factory: pytest.TempPathFactory) -> None:
    import torch

    from formats.selection import read_selection
    from stages import models

    work = prepared.untouched(tmp_path_factory)
    selection = read_selection(work / "work" / "selection.jsonl")
    model = models.load_model(models.find_model(work / "model"), dtype=torch.float32)
    with pytest.raises(SystemExit, match=r"GiB, more than --memory 1e-06; select fewer rows"):
        quality().exact_products(model, selection, [None] * len(selection), 1e-6)
