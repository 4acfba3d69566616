"""``--fraction auto --curve``: as many rows as a comparison says are enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.artifacts import Header
from formats.comparison import KIND, NAME, write_comparison
from formats.errors import ArtifactError, SettingError
from formats.selection import read_selection
from stages.select import select
from tests.synthetic import Notes, write_clusters

RULES = {"method": "cluster", "quota": "sqrt", "within": "random", "trim": 0.0, "weights": False}


def curve(arm: str = "cluster", **changed: Any) -> dict[str, Any]:
    """99 % of full quality from 42 % of 1,000 rows on."""
    needed = {"mean": 0.42, "deviation": 0.1, "low": -0.02, "high": 0.9, "values": [0.4, 0.44]}
    made = {"arm": arm, "rows": 1000, "share": 0.99, "needed": needed, "at_most": False}
    return {**made, "select": RULES, **changed}


def compared(folder: Path, *curves: dict[str, Any], key: str = "c") -> Path:
    folder.mkdir(exist_ok=True)
    parts: dict[str, Any] = {"arms": [], "verdicts": [], "trials": [], "curves": list(curves)}
    write_comparison(folder / NAME, Header(KIND, 64 * key, {}, []), **parts)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_clusters(Path("c.zarr"), np.repeat([0, 1], [70, 30]))
    return Path()


def chosen(curve: Path, **settings: Any) -> Any:
    select(Path("c.zarr"), Path("s.jsonl"), fraction="auto", curve=curve, **settings)
    return read_selection("s.jsonl")


def refused(curve: Path, **settings: Any) -> str:
    with pytest.raises((SettingError, ArtifactError)) as error:
        chosen(curve, **settings)
    assert not Path("s.jsonl").exists()
    return str(error.value)


def test_the_curve_says_how_much_and_no_signature_is_read(here: Path) -> None:
    notes = Notes()
    selection = chosen(compared(here / "out", curve("random"), curve()), reporter=notes)
    assert len(selection) == 42
    assert notes.messages[0] == (
        "42.0% of the rows: from there on out/comparison.json keeps 99% of full quality "
        "(measured on 1,000 rows, 0% to 90% over its seeds)"
    )
    header = selection.header
    assert header.stats["learned"]["reason"] == notes.messages[0]
    assert (header.params["fraction"], header.params["curve"]) == ("auto", True)
    assert "coverage" not in header.params
    assert header.inputs[1] == {"path": "out/comparison.json", "sha256": 64 * "c", "rows": 1000}


def test_one_seed_has_no_spread_and_no_curve_asks_for_more_than_all(here: Path) -> None:
    needed = {"mean": 1.02, "low": None, "high": None}
    notes = Notes()
    assert len(chosen(compared(here / "out", curve(needed=needed)), reporter=notes)) == 100
    assert notes.messages[0].endswith("full quality (measured on 1,000 rows)")


def test_the_file_is_as_good_as_its_folder_and_another_comparison_another_key(here: Path) -> None:
    folder = compared(here / "out", curve())
    key = chosen(folder).header.key
    assert chosen(folder / NAME).header.key == key
    assert chosen(compared(folder, curve(), key="d")).header.key != key


def test_a_curve_of_another_way_to_choose_is_refused(here: Path) -> None:
    folder = compared(here / "out", curve(), curve("random", select={"method": "random"}))
    assert refused(folder, quota="equal", min_per_cluster=2) == (
        "the curve of out/comparison.json is of another way to choose: quota sqrt (here equal), "
        "min_per_cluster not set (here 2); select as it did, or compare with these settings"
    )
    assert refused(folder, method="loss") == (
        "out/comparison.json has no curve of the arm loss; it has cluster, random; "
        "compare that arm as well, or give --method cluster"
    )


def test_a_comparison_without_a_curve_is_refused(here: Path) -> None:
    assert refused(compared(here / "out")) == (
        "out/comparison.json has no learning curve; compare at several fractions: "
        "cluster-cli compare --fraction 0.1 --fraction 0.31 ..."
    )
    older = {name: value for name, value in curve().items() if name != "select"}
    assert refused(compared(here / "out", older)) == (
        "out/comparison.json does not say how its rows were chosen; "
        "run the comparison again, it keeps what it has"
    )
    assert refused(here / "none") == (
        "none does not exist; make it with `cluster-cli compare ... -o none`"
    )


@pytest.mark.parametrize("budget", [{"fraction": 0.31}, {"count": 10}])
def test_it_wants_the_fraction_auto(here: Path, budget: dict[str, Any]) -> None:
    with pytest.raises(SettingError) as error:
        select(Path("c.zarr"), Path("s.jsonl"), curve=compared(here / "out", curve()), **budget)
    assert str(error.value) == (
        "--curve says how much --fraction auto selects, and that is not given; "
        "give --fraction auto, or drop --curve"
    )
