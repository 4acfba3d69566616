"""Running only what is needed, and leaving everything else alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats import artifacts
from formats.errors import ArtifactError, DataChangedError, SettingError
from stages.pipeline import run, status
from stages.reporting import Silent
from tests import prepared
from tests.stages.pipeline.pipelines import STAGES, pipeline


class Heard(Silent):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


@pytest.fixture
def work(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    folder = prepared.copy(tmp_path_factory, tmp_path / "copy")
    monkeypatch.chdir(folder)
    return folder / "work"


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below: which one it is, and what it holds."""
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_with_everything_fresh_nothing_is_written_but_time_stamps(work: Path) -> None:
    before, stamp = contents(work), work / "run" / "run.json"
    old = stamp.stat().st_mtime_ns
    heard = Heard()
    found = run(pipeline(), reporter=heard)
    assert all(state.fresh for state in found)
    assert contents(work) == before
    assert stamp.stat().st_mtime_ns > old
    assert heard.messages == [
        f"{stage}: work/{name} is up to date" for stage, name in prepared.OUTPUTS.items()
    ]


def test_a_changed_stage_and_those_after_it_run_and_no_others(work: Path) -> None:
    before = contents(work)
    heard = Heard()
    chain = pipeline(select={"seed": 1, "within": "farthest"})
    found = run(chain, until="allocate", reporter=heard)
    assert [state.stage for state in found if not state.fresh] == ["select", "allocate"]
    assert "select: within: random -> farthest; seed: 0 -> 1" in heard.messages
    changed = {name for name, value in contents(work).items() if before[name] != value}
    assert changed == {
        "selection.jsonl",
        "allocation/manifest.json",
        "allocation/rank-00000.jsonl",
    }
    assert {s.stage: s.state for s in status(chain)} == dict.fromkeys(STAGES, "fresh") | {
        "train": "stale"
    }
    assert sorted(path.name for path in work.iterdir()) == sorted(prepared.OUTPUTS.values())


def test_from_takes_what_came_before_as_it_is(work: Path) -> None:
    before = artifacts.read_header(work / "clusters.zarr", "clusters").key
    chain = pipeline(score={"seed": 9}, select={"count": 7, "fraction": None})
    found = run(chain, since="select", until="select")
    assert [state.stage for state in found] == ["select"]
    header = artifacts.read_header(work / "selection.jsonl", "selection")
    assert header.stats["selected"] == 7
    assert header.inputs[0]["sha256"] == before


def test_force_runs_what_is_fresh(work: Path) -> None:
    before = contents(work)
    heard = Heard()
    run(pipeline(), since="select", until="allocate", force=True, reporter=heard)
    assert heard.messages[0] == "select: forced"
    after = contents(work)
    for name in ("selection.jsonl", "allocation/manifest.json"):
        assert after[name][1] == before[name][1]  # the same bytes,
        assert after[name][0] != before[name][0]  # written anew


def test_a_failing_stage_keeps_the_last_good_artifact_and_ends_the_run(work: Path) -> None:
    before = contents(work)
    with pytest.raises(SettingError) as error:
        run(pipeline(select={"count": 1000, "fraction": None}))
    assert str(error.value).startswith("--count 1000 is more than the 60 clustered rows")
    assert contents(work) == before


def test_training_on_changed_data_is_refused_before_it_starts(work: Path) -> None:
    """``--from train`` does not look at the data; the stage does."""
    (work / "../data.jsonl").write_text('{"question": "a", "answer": "b"}\n' * 60)
    with pytest.raises(DataChangedError):
        run(pipeline(train={"seed": 1}), since="train")


def test_a_missing_input_is_an_error(work: Path) -> None:
    (work / "selection.jsonl").unlink()
    with pytest.raises(ArtifactError) as error:
        run(pipeline(), since="allocate")
    assert str(error.value) == (
        "work/selection.jsonl does not exist, and --from allocate begins with it; leave --from out"
    )


def test_inside_a_launch_it_does_not_run(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SettingError) as error:
        run(pipeline())
    assert str(error.value) == (
        "run starts its ranks itself, but this is one rank of many; call it outside of torchrun, srun "
        "or deepspeed, or call a single stage"
    )
