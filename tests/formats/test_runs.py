"""Reading and writing ``metrics.jsonl``."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats import runs
from formats.errors import ArtifactError


def test_steps_and_evaluations_are_told_apart(tmp_path: Path) -> None:
    writer = runs.MetricsWriter(tmp_path)
    writer.write({"step": 0, "eval": {"a": {"loss": 2.0}}})
    writer.write({"step": 0, "loss": 1.5})
    writer.close()
    runs.MetricsWriter(tmp_path).write({"step": 1, "loss": 1.25})
    assert [line["loss"] for line in runs.read_metrics(tmp_path)] == [1.5, 1.25]
    assert list(runs.read_evaluations(tmp_path)) == [{"step": 0, "eval": {"a": {"loss": 2.0}}}]


def test_a_line_is_on_disk_as_soon_as_it_is_written(tmp_path: Path) -> None:
    writer = runs.MetricsWriter(tmp_path)
    writer.write({"step": 0})
    assert (tmp_path / runs.METRICS).read_text() == '{"step": 0}\n'
    writer.close()


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_broken_line_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / runs.METRICS
    path.write_text('{"step": 0}\n' + text + "\n")
    with pytest.raises(ArtifactError) as caught:
        list(runs.read_metrics(tmp_path))
    assert str(caught.value) == f"{path}:2: not a JSON object"


def test_no_metrics(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        list(runs.read_metrics(tmp_path))
    expected = f"cannot read {tmp_path / runs.METRICS}: No such file or directory"
    assert str(caught.value) == expected
