"""Tables and sentences from trials whose figures are known."""

from __future__ import annotations

from typing import Any

import pytest

from stages.compare.summary import summarise, verdicts


def trial(
    arm: str, seed: int, loss: float, *, groups: dict[str, float] | None = None, **more: Any
) -> dict[str, Any]:
    """What a trial leaves behind."""
    given = {"rows": 31, "seconds": 31.0, "selecting": 0.0, "epochs": 2, **more}
    return {
        "key": f"{arm}{seed}",
        "arm": arm,
        "seed": seed,
        "select": {"selected": given["rows"], "effective_sample_size": given["rows"]},
        "train": {
            "steps": given["rows"],
            "tokens": 10 * given["rows"],
            "train_seconds": given["seconds"],
            "wait_seconds": [1.0, 3.0],
        },
        "epochs": given["epochs"],
        "selecting_seconds": given["selecting"],
        "cost_is_known": True,
        "results": {
            "overall": {"loss": {"value": loss}},
            "by": {"kind": {name: {"loss": {"value": v}} for name, v in (groups or {}).items()}},
        },
    }


def lines(**arms: list[dict[str, Any]]) -> dict[str, Any]:
    """Summaries by arm, and the sentences."""
    found = summarise(arms, dict.fromkeys(arms, "what it is"), "loss", 0.01)
    seeds = len(next(iter(arms.values())))
    return {
        **{line["arm"]: line for line in found},
        "said": verdicts(found, "loss", 0.01, seeds),
    }


def full(losses: list[float]) -> list[dict[str, Any]]:
    return [trial("full", i, loss, rows=100, seconds=100.0) for i, loss in enumerate(losses)]


def test_a_paired_difference_shows_what_single_spreads_hide() -> None:
    found = lines(
        full=full([1.0, 2.0, 3.0]),
        random=[trial("random", i, loss) for i, loss in enumerate([1.30, 2.31, 3.29])],
        cluster=[trial("cluster", i, x, selecting=9.0) for i, x in enumerate([1.1, 2.1, 3.1])],
    )
    against = found["cluster"]["against"]["random"]
    assert against["better"] is True
    assert against["differences"]["loss"]["mean"] == pytest.approx(-0.2)
    assert found["cluster"]["quality"]["loss"]["deviation"] == pytest.approx(1.0)
    # 69 s saved; 9 s of selecting are worth 0.26 of the 34.5 s that an epoch saves.
    assert found["said"] == [
        "random: not as good as full: loss +0.3000 (+0.2752 to +0.3248).",
        "cluster: not as good as full: loss +0.1000 (+0.1000 to +0.1000).",
        "cluster: better than random: loss -0.2000 (-0.2248 to -0.1752).",
        "cluster: it paid: 1.15 min of training saved, 9.00 s spent on selecting, 1.00 min won.",
    ]
    assert found["cluster"]["savings"]["net_share"] == pytest.approx(0.60)
    assert found["cluster"]["savings"]["pays_from_epoch"] == 1
    assert found["cluster"]["waiting_seconds"] == 2.0


def test_what_cannot_be_told_apart_is_said_so() -> None:
    found = lines(
        full=full([1.0, 1.0]),
        random=[trial("random", 0, 1.0), trial("random", 1, 1.2)],
        cluster=[trial("cluster", 0, 1.1), trial("cluster", 1, 1.1)],
    )
    assert (
        "cluster: not distinguishable from random with 2 seeds: loss +0.0000 (-1.2706 to +1.2706)."
        in found["said"]
    )


def test_a_loss_within_the_margin_is_as_good_as_full() -> None:
    found = lines(
        full=full([1.0, 1.1, 1.2]),
        random=[trial("random", i, x) for i, x in enumerate([1.005, 1.105, 1.2049])],
    )
    assert found["random"]["against"]["full"]["as_good"] is True
    assert found["said"][0].startswith(
        "random: as good as full within 1% of its value (loss +0.0050"
    )


def test_one_seed_proves_nothing() -> None:
    found = lines(full=full([1.0]), random=[trial("random", 0, 0.5)])
    assert found["said"] == [
        "random: loss -0.5000 against full; one seed shows no spread, so nothing follows."
    ]


def test_selecting_that_cost_more_than_it_saved_is_said_with_the_break_even() -> None:
    found = lines(
        full=full([1.0, 1.1]),
        cluster=[trial("cluster", i, 1.0 + i / 10, selecting=345.0) for i in range(2)],
    )
    assert found["said"][-1] == (
        "cluster: it did not pay: 1.15 min of training saved, 5.75 min spent on selecting, 4.60 min "
        "lost; it would from 11 epochs on, or from the 6th job with the same map."
    )


def test_groups_give_their_mean_and_their_worst() -> None:
    groups = {"a": 1.0, "rare": 3.0}
    found = lines(full=[trial("full", 0, 1.2, groups=groups)])
    quality = found["full"]["quality"]
    assert quality["loss, mean over kind"]["mean"] == 2.0
    assert quality["loss, worst kind"]["mean"] == 3.0


def test_an_arm_is_measured_against_random_of_its_own_fraction_and_steps() -> None:
    arms = ["full", "random 10 %", "random+steps 10 %", "cluster+steps 10 %"]
    found = lines(**{arm: [trial(arm, 0, 1.0), trial(arm, 1, 1.1)] for arm in arms})
    assert set(found["cluster+steps 10 %"]["against"]) == {"full", "random+steps 10 %"}


def test_many_arms_are_said_to_differ_by_chance_too() -> None:
    arms = {f"arm{i}": [trial(f"arm{i}", s, 1.0 + s + i) for s in (0, 1)] for i in range(4)}
    random = [trial("random", s, 1.0 + s) for s in (0, 1)]
    found = lines(full=full([1.0, 1.0]), random=random, **arms)
    assert found["said"][-1] == (
        "4 arms were held against random at 95% each: by chance alone 0.2 of them would seem to differ."
    )
    few = lines(full=full([1.0, 1.0]), random=random, arm0=arms["arm0"])
    assert "by chance" not in " ".join(few["said"])
