"""From the items' results to the columns of the artifact."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.evaluate.answers import compare
from stages.evaluate.items import ANSWER, CHOICE, LOSS
from stages.evaluate.parts import Work
from stages.evaluate.programs import PASSED
from stages.evaluate.rows import read_choices, reference


def columns(work: Work, results: dict[int, Any]) -> dict[str, Any]:
    """The columns of ``formats.evaluation`` but the groups, one entry per measured row, in order.

    A column is left out where no row has it; a row that lacks it has null there.
    """
    rows = work.read.rows
    lines: dict[int, dict[str, Any]] = {row: {"row": row} for row in rows}
    likelihoods: dict[int, list[float]] = {}
    for number, item in enumerate(work.read.items):
        if item.kind == LOSS:
            total, count = results[number]
            identity = work.dataset.ids[item.row].tobytes().hex()
            lines[item.row] |= {"id": identity, "loss": total / count, "tokens": count}
        elif item.kind == CHOICE:
            likelihoods.setdefault(item.row, []).append(-results[number][0])
        elif item.kind == ANSWER:
            lines[item.row] |= _answered(work, item.row, results[number])
    for row, found in likelihoods.items():
        lines[row] |= _chosen(work, row, found)
    names = dict.fromkeys(name for row in rows for name in lines[row])
    return {name: [lines[row].get(name) for row in rows] for name in names}


def _answered(work: Work, row: int, result: dict[str, str]) -> dict[str, Any]:
    settings = work.job.settings
    line: dict[str, Any] = {"answer": result["answer"]}
    if settings.generate:
        line |= compare(result["answer"], reference(work.dataset[row], settings))
    if settings.run_code:
        line |= {
            "pass_at_1": float(result["outcome"] == PASSED),
            "outcome": result["outcome"],
        }
    return line


def _chosen(work: Work, row: int, likelihood: list[float]) -> dict[str, Any]:
    """Raw, and per character of the choice's text; of equals the first counts as chosen."""
    choices = read_choices(work.dataset[row], work.job.settings)
    assert choices is not None
    per_character = np.array(likelihood) / [len(text) for text in choices.texts]
    return {
        "log_likelihood": likelihood,
        "accuracy": float(int(np.argmax(likelihood)) == choices.right),
        "accuracy_normalised": float(int(np.argmax(per_character)) == choices.right),
    }
