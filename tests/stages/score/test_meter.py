"""The meters themselves: what is exact, what agreement means, and that a lesson is found."""

from __future__ import annotations

import numpy as np
import torch

from formats.rendering import OK, Rendered
from stages.score import meter
from stages.score.signers import GradientSigner
from tests import tiny
from tests.stages.score.test_signers import LENGTHS, RESPONSES, exact_gradients, make_batch


def rendered() -> list[Rendered]:
    batch = make_batch()
    return [
        Rendered(
            batch.input_ids[i, :length].numpy().astype(np.int32),
            batch.supervised[i, :length].numpy(),
            OK,
            length - RESPONSES[i],
            RESPONSES[i],
        )
        for i, length in enumerate(LENGTHS)
    ]


def test_the_exact_signer_is_exact_for_layers_it_only_rotates() -> None:
    exact = exact_gradients(tiny.model())
    unit = exact / exact.norm(dim=1, keepdim=True)
    (signature,) = meter.sign_together([meter.exact_signer(tiny.model())], rendered(), 64)
    np.testing.assert_allclose(meter.cosines(signature), (unit @ unit.T).numpy(), atol=2e-3)


def test_signing_together_is_signing_alone() -> None:
    model = tiny.model()
    settings = ({"rank": 8, "dims": 64}, {"rank": 4, "dims": 100, "layers": "last:1"})
    signers = [GradientSigner(model, seed=0, **chosen) for chosen in settings]
    together = meter.sign_together(signers, rendered(), 1000)
    for chosen, got in zip(settings, together, strict=True):
        alone, _ = GradientSigner(tiny.model(), seed=0, **chosen)(make_batch())
        np.testing.assert_allclose(got, meter.unit(alone), atol=2e-3)


def test_agreement_of_a_matrix_with_itself_and_with_its_negative() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40, 8))
    matrix = rows @ rows.T
    source = np.arange(40) % 3
    same = meter.agreement(matrix, matrix, source)
    assert {name: round(value, 9) for name, value in same.items()} == {
        "correlation": 1.0,
        "within_source": 1.0,
        "neighbours": 1.0,
    }
    assert round(meter.agreement(-matrix, matrix, source)["correlation"], 9) == -1.0


def test_the_cheapest_that_reaches_the_goal_is_recommended() -> None:
    lines = [
        {"signature": name, "correlation": value}
        for name, value in (("a", 0.3), ("b", 0.8), ("c", 0.95), ("d", 0.99))
    ]
    assert meter.recommend(lines, 0.9)["signature"] == "c"
    assert meter.recommend(lines, 0.999)["signature"] == "d"


def test_a_step_on_a_lesson_helps_its_own_members_more() -> None:
    """Two lessons that share no token: after A comes B, after C comes D."""

    def row(prompt: int, answer: int, filler: int) -> Rendered:
        ids = np.array([filler, prompt, answer], np.int32)
        return Rendered(ids, np.array([False, False, True]), OK, 2, 1)

    rows = [row(10, 20, 100 + i) for i in range(8)] + [row(11, 21, 100 + i) for i in range(8)]
    label = np.array([0] * 8 + [1] * 8)
    results = meter.lesson_test(tiny.model, rows, label, clusters=2, learning_rate=0.02)
    assert len(results) == 2
    for result in results:
        assert result["members"] > 0
        assert result["members"] > 2 * result["others"]


def test_candidates_come_cheapest_first_with_their_figures() -> None:
    torch.manual_seed(0)
    lines, signatures = meter.compare_candidates(tiny.model(), rendered() * 3, 1000)
    assert [line["signature"] for line in lines] == [name for name, _ in meter.CANDIDATES]
    assert lines[-1]["correlation"] > 0.9
    assert signatures["gradient, rank 64"].shape == (12, 4096)
    costs = [line["cost"] for line in lines]
    assert costs == sorted(costs)
