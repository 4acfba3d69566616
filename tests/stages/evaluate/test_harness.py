"""Tasks of the lm-evaluation-harness: what is kept of its answer, and, where installed, the real thing."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from formats.errors import SettingError
from formats.evaluation import Evaluation
from stages.evaluate import EvaluateSettings, evaluate
from stages.evaluate.harness import contents, find_tasks, tasks_of
from tests import tiny

TASK = """\
task: mini_choice
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list:
  - metric: acc
metadata:
  version: 1.0
"""


def test_numbers_and_versions_are_kept() -> None:
    found = {
        "results": {"a": {"alias": "a", "acc,none": 0.5, "acc_stderr,none": 0.1, "n": None}},
        "versions": {"a": 2.0},
    }
    assert tasks_of(found) == {"a": {"acc,none": 0.5, "acc_stderr,none": 0.1, "version": "2.0"}}


class Manager:
    """As much of a ``TaskManager`` as is asked for names."""

    def match_tasks(self, patterns: list[str]) -> list[str]:
        import fnmatch

        return [n for p in patterns for n in fnmatch.filter(["mmlu_law", "mmlu_art", "gsm8k"], p)]


def test_patterns_stand_for_tasks_and_unknown_ones_are_refused() -> None:
    assert find_tasks(Manager(), ("gsm8k", "mmlu_*", "mmlu_law")) == [
        "gsm8k",
        "mmlu_law",
        "mmlu_art",
    ]
    with pytest.raises(SettingError) as error:
        find_tasks(Manager(), ("gsm9k",))
    assert str(error.value) == (
        "--tasks: the lm-evaluation-harness has no task 'gsm9k'; `lm_eval --tasks list` shows them"
    )


def test_the_files_of_a_task_folder_are_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.4.9")
    with pytest.raises(SettingError) as error:
        contents(str(tmp_path))
    assert str(error.value) == (
        f"--task-folder {tmp_path} holds no task; name a folder with .yaml files"
    )
    (tmp_path / "a.yaml").write_text("task: a\n")
    first = contents(str(tmp_path))
    (tmp_path / "a.yaml").write_text("task: b\n")
    assert first["lm_eval"] == "0.4.9"
    assert contents(str(tmp_path)) != first
    assert contents(None) == {"lm_eval": "0.4.9"}


@pytest.mark.slow
def test_a_task_of_ones_own_is_run_by_the_harness(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    tiny.save(tmp_path / "model")
    rows = [{"question": f"{i}?", "choices": ["x", f"{i}"], "answer": i % 2} for i in range(4)]
    data = tiny.write_jsonl(tmp_path / "d.jsonl", rows)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "mini.yaml").write_text(TASK.format(data=data))
    settings = EvaluateSettings(tasks=("mini_*",), task_folder=str(tmp_path / "tasks"))
    evaluate(tmp_path / "model", [], tmp_path / "e.json", settings=settings)
    found = Evaluation.open(tmp_path / "e.json")
    assert 0 <= found.tasks["mini_choice"]["acc,none"] <= 1
    assert json.loads((tmp_path / "e.json").read_text())["stats"]["rows"] == 0
