"""The tables of comparisons: figures as they follow from the trials by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("comparisons")


def trial(arm: str, seed: int, frequent: float, rare: float) -> dict[str, Any]:
    """Thirty frequent dev rows and ten rare ones."""
    by = {"a": (frequent, 30), "b": (rare, 10)}
    groups = {n: {"verbatim": {"value": v, "examples": e}} for n, (v, e) in by.items()}
    overall = {"verbatim": {"value": (30 * frequent + 10 * rare) / 40}}
    return {"arm": arm, "seed": seed, "results": {"overall": overall, "by": {"kind": groups}}}


@pytest.fixture
def result() -> dict[str, Any]:
    arms: list[dict[str, Any]] = [{"arm": "random", "rows": 31}, {"arm": "cluster", "rows": 31}]
    arms[1]["savings"] = {"net_share": 0.5}
    return {
        "params": {"metric": "verbatim", "seeds": 2},
        "arms": arms,
        "trials": [
            trial("cluster", 1, 0.6, 0.9),
            trial("cluster", 0, 0.6, 0.7),
            trial("random", 0, 0.6, 0.3),
            trial("random", 1, 0.6, 0.5),
        ],
    }


def test_a_table_pairs_seeds_and_marks_what_differs(
    comparisons: Any, result: dict[str, Any]
) -> None:
    how = comparisons.Compared("Toys", "two kinds", "kind", lambda kind: kind == "b", "kind b")
    lines = comparisons._table(result, how).splitlines()
    # Overall: (30 * 0.6 + 10 r) / 40; both gaps are 0.4 in the rare kind, 0.1 overall, without spread.
    assert lines[4:] == [
        "| random | 31 | 55.0 ± 3.5 |  | 40.0 ± 14.1 |  |  |",
        "| cluster | 31 | 65.0 ± 3.5 | **+10.0 (+10.0 to +10.0)** | 80.0 ± 14.1 "
        "| **+40.0 (+40.0 to +40.0)** | +50% |",
    ]
    assert "rare: kind b" in lines[0]


def test_groups_count_by_their_shares_of_the_pool(comparisons: Any, result: dict[str, Any]) -> None:
    shares = {"a": 90.0, "b": 10.0}
    how = comparisons.Compared("Toys", "two kinds", "kind", lambda kind: kind == "b", "b", shares)
    head, _, random, *_ = comparisons._table(result, how).splitlines()[2:]
    assert head.startswith(
        "| arm | rows | all groups alike | against random | as frequent as in the pool |"
    )
    # 0.9 * 0.6 + 0.1 * 0.3, and with 0.5: 57 and 59.
    assert random.startswith("| random | 31 | 55.0 ± 3.5 |  | 58.0 ± 1.4 |  | 40.0 ± 14.1 |")


def test_every_comparison_that_is_kept_is_shown(comparisons: Any) -> None:
    kept = {
        file.stem.removeprefix("comparison_") for file in DOCS.glob("results/comparison_*.json")
    }
    assert kept <= {*comparisons.COMPARED, "curve"}
