"""The matrix of changed stages: every setting is in it, and it says what the states say."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

from cluster_cli.settings import STAGES

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Whoever adds an option decides here that it does not change a result.
WITHOUT_MARK = {
    "score": {
        *("allow-partial", "reuse", "ranks", "hostfile", "batch-tokens", "block-rows"),
        "trust-remote-code",
    },
    "cluster": {"ranks", "hostfile"},
    "select": {"signatures"},
    "allocate": set(),
    "train": {
        *("zero-stage", "offload", "gradient-checkpointing", "data", "hostfile"),
        *("checkpoint-every", "checkpoint-minutes", "keep"),
    },
}


@pytest.fixture(scope="module")
def page() -> dict[str, dict[str, list[str]]]:
    """By section and setting, the stages with a mark."""
    sys.path.insert(0, str(DOCS))
    try:
        import changes
    finally:
        sys.path.remove(str(DOCS))
    found: dict[str, dict[str, list[str]]] = {}
    for line in changes.page().splitlines():
        if line.startswith("## "):
            section = found.setdefault(line[4:-1], {})
        elif line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            marks = [name for name, mark in zip(STAGES, cells[2:], strict=True) if mark == "●"]
            section[cells[0].strip("`")] = marks
    return found


def test_a_setting_redoes_its_stage_and_those_after_it_or_nothing(
    page: dict[str, dict[str, list[str]]],
) -> None:
    assert list(page) == list(STAGES)
    for number, stage in enumerate(STAGES):
        unmarked = {key for key, marks in page[stage].items() if not marks}
        assert unmarked == WITHOUT_MARK[stage]
        for key, marks in page[stage].items():
            assert marks in ([], list(STAGES[number:])), key


def test_every_setting_is_in_it(page: dict[str, dict[str, list[str]]]) -> None:
    from cluster_cli.main import cli

    never = {"output", "force", "json", "dry-run", "resume", "meter", "goal", "split", "subset"}
    with click.Context(cli) as context:
        for stage in STAGES:
            command = cli.get_command(context, stage)
            assert command is not None
            options = [option for option in command.params if isinstance(option, click.Option)]
            keys = {max(option.opts, key=len)[2:] for option in options} - never
            assert set(page[stage]) == keys | ({"data"} if stage == "score" else set())


def test_it_agrees_with_the_states(page: dict[str, dict[str, list[str]]]) -> None:
    """``MATTERS`` was written by hand, and is tested against artifacts that were really made."""
    from tests.stages.pipeline.test_states import MATTERS

    for stage, change, _ in MATTERS:
        (name,) = change
        assert page[stage][name.replace("_", "-")] == list(STAGES[STAGES.index(stage) :]), name
