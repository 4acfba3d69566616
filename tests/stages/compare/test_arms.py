"""Arms by name, arms made up on the command line, and what they change."""

from __future__ import annotations

import pytest

from formats.errors import SettingError
from stages.compare.arms import ARMS, find_arms, merge, seeded, with_equal_steps
from stages.select.methods import METHODS


def test_every_method_of_select_has_an_arm() -> None:
    methods = {arm.changes.get("select", {}).get("method") for arm in ARMS.values()}
    assert {"full": "all"}.get("full") in methods
    assert set(METHODS) <= methods


def test_arms_that_look_at_nothing_cost_nothing() -> None:
    assert {name for name, arm in ARMS.items() if not arm.costs} == {"full", "random"}


def test_an_arm_can_be_made_up() -> None:
    (arm,) = find_arms([], ["mine=select.quota=sqrt,select.trim=0,cluster.centre=false"], None)
    assert arm.name == "mine"
    assert arm.changes == {"select": {"quota": "sqrt", "trim": 0}, "cluster": {"centre": False}}


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(SettingError) as error:
        find_arms(["ful", "cluster-proxy", "random", "random"], ["x=quota=sqrt"], None)
    assert error.value.data["problems"] == [
        f"there is no arm 'ful' (did you mean 'full'?); arms are {', '.join(ARMS)}",
        "the arm cluster-proxy needs --proxy MODEL",
        "--arm 'x=quota=sqrt': 'quota=sqrt' is not of the form section.key=value",
        "the arm 'random' stands twice",
    ]


def test_a_proxy_is_a_setting_of_score() -> None:
    (arm,) = find_arms(["cluster-proxy"], [], "small")
    assert arm.changes == {"score": {"proxy": "small"}}


def test_later_changes_win_and_nothing_given_is_changed() -> None:
    first = {"select": {"quota": "sqrt", "seed": 1}}
    merged = merge(first, {"select": {"quota": "equal"}}, seeded(7))
    assert merged["select"] == {"quota": "equal", "seed": 7}
    assert first == {"select": {"quota": "sqrt", "seed": 1}}
    assert "score" not in merged  # scored once for all seeds


def test_equal_steps_double_every_arm_but_the_full_one() -> None:
    arms = with_equal_steps(find_arms(["full", "random", "cluster"], [], None))
    assert [arm.name for arm in arms] == [
        *("full", "random", "cluster"),
        *("random+steps", "cluster+steps"),
    ]
