"""The arithmetic of savings: published figures, formulas by brute force, recorded times."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.artifacts import Header
from formats.errors import ArtifactError, SettingError
from stages.savings import as_time, first_above, in_words, measured, savings

hours = st.decimals("0.1", "50", places=2).map(float)
parts = st.decimals("0.01", "1.5", places=2).map(float)


def test_the_published_figures() -> None:
    """69.6 % less time is 10 h -> 3.04 h, 3.29 times as fast (the method's authors)."""
    found = savings(10, fraction=0.304, selection_hours=0.7)
    assert found.subset_hours == 3.04
    assert round(found.speedup or 0, 2) == 3.29
    assert (found.saved_hours, found.saved_share) == (6.96, 0.696)
    assert found.net_hours == 6.26
    assert round(found.epochs_exact or 0, 4) == round(0.7 / 6.96, 4)
    assert (found.pays_from_epoch, found.reused_pays_from_job, found.anew_pays_from_job) == (
        1,
        1,
        1,
    )


def test_an_exact_tie_does_not_pay_yet() -> None:
    """Three epochs of 0.1 h make up for 0.3 h, in decimals; in binary 3 * 0.1 > 0.3."""
    found = savings(0.2, fraction=0.5, selection_hours=0.3)
    assert found.epochs_exact == 3.0
    assert found.pays_from_epoch == 4


@given(hours, parts, hours, st.integers(1, 4), st.integers(1, 5), parts)
def test_the_formulas(
    full: float, fraction: float, once: float, epochs: int, jobs: int, again: float
) -> None:
    found = savings(
        full,
        fraction=fraction,
        selection_hours=once,
        reuse_hours=again,
        epochs=epochs,
        jobs=jobs,
    )
    saved = full * (1 - fraction)
    assert found.saved_hours == pytest.approx(saved)
    assert found.saved_share == pytest.approx(1 - fraction)
    assert found.speedup == pytest.approx(1 / fraction)
    assert found.net_hours == pytest.approx(saved - once)
    assert found.anew_net_hours == pytest.approx(jobs * (saved - once))
    assert found.reused_net_hours == pytest.approx(jobs * saved - once - (jobs - 1) * again)
    if jobs == 1:
        assert found.reused_net_hours == pytest.approx(found.net_hours)


@given(hours, parts, hours, st.integers(1, 3), parts)
def test_from_the_break_even_on_it_pays_and_before_it_does_not(
    full: float, fraction: float, once: float, epochs: int, again: float
) -> None:
    def net(**changed: Any) -> Any:
        given = {"selection_hours": once, "reuse_hours": again, "epochs": epochs} | changed
        return savings(full, fraction=fraction, **given)

    found = net()
    for first, value in (
        (found.reused_pays_from_job, lambda n: net(jobs=n).reused_net_hours),
        (found.anew_pays_from_job, lambda n: net(jobs=n).anew_net_hours),
        # one job of n epochs takes n / epochs of the time
        (
            found.pays_from_epoch,
            lambda n: (
                savings(
                    float(Fraction(str(full)) * n),
                    fraction=fraction,
                    selection_hours=float(Fraction(str(once)) * epochs),
                ).net_hours
            ),
        ),
    ):
        if first is None:
            assert all(value(n) <= 1e-9 for n in (1, 2, 50, 1000))
        else:
            assert value(first) > 0
            assert first == 1 or value(first - 1) <= 1e-9


@given(st.fractions(-5, 5, max_denominator=50), st.fractions(-5, 5, max_denominator=50))
def test_first_above_is_the_smallest(gain: Fraction, cost: Fraction) -> None:
    tried = next((n for n in range(1, 300) if n * gain > cost), None)
    assert first_above(gain, cost) == tried or (tried is None and gain > 0)


def test_never_is_said_plainly() -> None:
    assert in_words(savings(10, fraction=1.2, selection_hours=1)) == [
        "Selecting never pays: training takes 12.00 h on the subset and 10.00 h on everything."
    ]
    assert in_words(savings(10, fraction=0.5, selection_hours=8, reuse_hours=6, epochs=2)) == [
        "One job: selecting pays from 4 epochs on; an epoch saves 2.50 h, and 3.20 of them make up for "
        "one selection.",
        "Several jobs, map reused: selecting never pays; a job of 2 epochs saves 5.00 h, and selecting "
        "for it costs 6.00 h.",
        "Several jobs, a new map for each: selecting never pays; a job of 2 epochs saves 5.00 h, and "
        "selecting for it costs 8.00 h.",
    ]


@pytest.mark.parametrize(
    ("hours", "text"),
    [(10, "10.00 h"), (0, "0.00 h"), (0.1, "0.10 h"), (0.05, "3.00 min"), (0.01, "36.00 s")],
)
def test_times_are_readable(hours: float, text: str) -> None:
    assert as_time(hours) == text


def test_numbers_out_of_range_are_named_at_once() -> None:
    with pytest.raises(SettingError) as error:
        savings(0, fraction=-1, selection_hours=float("nan"), jobs=0)
    assert str(error.value) == (
        "full_hours is 0, it must be above 0; fraction is -1, it must be above 0; selection_hours is "
        "nan, it must be 0 or more; jobs is 0, it must be 1 or more"
    )
    with pytest.raises(SettingError, match="give the subset's fraction or its hours, one of them"):
        savings(1)


def write_run(folder: Path, key: str, seconds: float, epochs: int = 2, **stats: Any) -> Path:
    """A run as train records it, its selection beside it, with the time of scoring alone."""
    folder.mkdir(parents=True)
    stats = {"device": "cpu", "world_size": 1, "weights": 7, "dtype": "float32"} | stats
    inputs = [{"path": f"{folder.name}-signatures", "sha256": "s", "rows": 1}]
    header = Header("run", key, {}, inputs, {"train_seconds": seconds, **stats})
    (folder / "run.json").write_text(json.dumps(header.to_json()))
    lines = [json.dumps({"step": n, "epoch": n // 2}) + "\n" for n in range(2 * epochs)]
    (folder / "metrics.jsonl").write_text("".join(lines))
    signatures = folder.with_name(inputs[0]["path"])
    signatures.mkdir()
    raw = Header("signatures", "s", {}, [], {"seconds": 360.0}).to_json()
    (signatures / "zarr.json").write_text(json.dumps({"attributes": raw}))
    return folder


def test_two_runs_and_the_recorded_time_of_scoring(tmp_path: Path) -> None:
    full = write_run(tmp_path / "full", "a", 7200.0)
    part = write_run(tmp_path / "part", "b", 1800.0)
    found = measured(full / "run.json", part)
    assert (found.full_hours, found.subset_hours, found.selection_hours) == (2.0, 0.5, 0.1)
    assert (found.epochs, found.pays_from_epoch) == (2, 1)
    assert found.net_hours == pytest.approx(1.4)
    assert found.parts == {str(tmp_path / "part-signatures"): 0.1}
    assert found.cautions == []
    assert measured(full, part, selection_hours=0.7).selection_hours == 0.7
    with pytest.raises(SettingError) as error:
        measured(full, full)
    assert str(error.value) == f"{full} and {full} are the same run; give two different ones"


def test_what_speaks_against_the_figures_is_said(tmp_path: Path) -> None:
    full = write_run(tmp_path / "full", "a", 7200.0, world_size=4)
    part = write_run(tmp_path / "part", "b", 1800.0, epochs=3)
    other = tmp_path / "part-signatures"
    found = measured(full, part, selection=[other, full])
    assert found.cautions == [
        "the runs differ in world_size: 4 and 1",
        "the runs differ in epochs: 2 and 3",
        f"no time is recorded for {full}: not counted",
    ]


def test_an_unknown_cost_is_no_free_selection(tmp_path: Path) -> None:
    full = write_run(tmp_path / "full", "a", 7200.0)
    part = write_run(tmp_path / "part", "b", 1800.0)
    (tmp_path / "part-signatures" / "zarr.json").unlink()
    with pytest.raises(SettingError) as error:
        measured(full, part)
    assert str(error.value) == (
        f"no time of selecting is recorded in {tmp_path}/part-signatures; name the artifacts with "
        "--selection, or give --selection-hours"
    )
    broken = write_run(tmp_path / "broken", "c", 0.0)
    with pytest.raises(ArtifactError) as wrong:
        measured(broken, part, selection_hours=1.0)
    assert str(wrong.value) == f"{broken}/run.json: train_seconds is 0.0, not a time"
