"""What is fresh, stale, incomplete or missing, and why; nothing heavy is needed to know."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from formats import artifacts
from formats.errors import ArtifactMissingError, SettingError
from formats.fingerprints import digest, file_sha256
from formats.signatures import PENDING
from stages.models import find_model
from stages.pipeline import Pipeline, State, keys, run, status
from stages.pipeline.chain import LINKS, UNSEEN
from tests import prepared, tiny
from tests.stages.pipeline.pipelines import STAGES, pipeline


@pytest.fixture
def work(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    """A copy of the prepared chain, the current folder."""
    folder = prepared.copy(tmp_path_factory, tmp_path / "copy")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def here(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The prepared chain itself, for tests that only look."""
    folder = prepared.untouched(tmp_path_factory)
    monkeypatch.chdir(folder)
    return folder


def said(chain: Pipeline, **window: str) -> dict[str, tuple[str, list[str]]]:
    return {s.stage: (s.state, s.reasons) for s in status(chain, **window)}


def after(stage: str) -> dict[str, tuple[str, list[str]]]:
    """The stages downstream, when this one will run again."""
    names = STAGES[STAGES.index(stage) :]
    return {
        name: ("stale", [f"{before} will run again"]) for before, name in itertools.pairwise(names)
    }


def test_after_a_run_everything_is_fresh(here: Path) -> None:
    assert said(pipeline()) == dict.fromkeys(STAGES, ("fresh", []))


def test_looking_changes_nothing_and_loads_nothing(here: Path) -> None:
    before = sorted((p, p.stat().st_mtime_ns) for p in (here / "work").rglob("*"))
    program = (
        "import sys; from cluster_cli.main import run; code = run(['status', '--check']); "
        "heavy = [m for m in ('torch', 'transformers', 'sklearn', 'zarr', 'datasets') "
        "if m in sys.modules]; sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=here,
        env=prepared.ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted((p, p.stat().st_mtime_ns) for p in (here / "work").rglob("*")) == before


# Each setting, the stage it belongs to, and the reason given; it redoes that stage and all after it.
MATTERS: list[tuple[str, dict[str, Any], str]] = [
    ("score", {"rank": 4}, "rank: 8 -> 4"),
    ("score", {"dims": 32}, "dims: 64 -> 32"),
    ("score", {"seed": 1}, "seed: 0 -> 1"),
    ("score", {"kind": "head"}, "kind: gradient -> head"),
    ("score", {"max_length": 99}, "max_length: 1024 -> 99"),
    ("score", {"dtype": "float32"}, "dtype: auto -> float32"),
    ("score", {"layers": "last:1"}, "layers: all -> last:1"),
    ("score", {"chat_template": "{{ x }}"}, f"chat_template: none -> {digest('{{ x }}')[:12]}"),
    ("score", {"limit": 50}, "limit: none -> 50"),
    ("score", {"format": "qa"}, "format: auto -> qa"),
    ("score", {"on_bad_row": "skip"}, "on_bad_row: fail -> skip"),
    ("cluster", {"clusters": 5}, "clusters: 4 -> 5"),
    ("cluster", {"centre": False}, "centre: true -> false"),
    ("cluster", {"seed": 1}, "seed: 0 -> 1"),
    ("cluster", {"sample": 20}, "sample: 50000 -> 20"),
    ("cluster", {"rounds": 0}, "rounds: none -> 0"),
    ("select", {"fraction": 0.5}, "fraction: 0.31 -> 0.5"),
    ("select", {"seed": 1}, "seed: 0 -> 1"),
    ("select", {"within": "nearest"}, "within: random -> nearest"),
    ("select", {"method": "random"}, "method: cluster -> random"),
    ("select", {"quota": "equal"}, "quota: sqrt -> equal"),
    ("select", {"trim": 0.1}, "trim: 0.0 -> 0.1"),
    ("select", {"weights": False}, "weights: true -> false"),
    ("select", {"min_per_cluster": 2}, "min_per_cluster: none -> 2"),
    ("select", {"stratify": "answer"}, "stratify: none -> answer"),
    ("allocate", {"ranks": 2}, "ranks: 1 -> 2"),
    ("allocate", {"strategy": "random"}, "strategy: disjoint -> random"),
    ("allocate", {"micro_batch": 2}, "micro_batch: 4 -> 2"),
    ("allocate", {"accumulation": 2}, "accumulation: 1 -> 2"),
    ("allocate", {"epochs": 1}, "epochs: 2 -> 1"),
    ("allocate", {"seed": 1}, "seed: 0 -> 1"),
    ("allocate", {"rotate": True}, "rotate: false -> true"),
    ("train", {"learning_rate": 1e-4}, "learning_rate: 0.001 -> 0.0001"),
    ("train", {"warmup": 0.1}, "warmup: 0.03 -> 0.1"),
    ("train", {"weight_decay": 0.1}, "weight_decay: none -> 0.1"),
    ("train", {"schedule": "linear"}, "schedule: cosine -> linear"),
    ("train", {"clip": 0.5}, "clip: none -> 0.5"),
    ("train", {"dtype": "bfloat16"}, "dtype: auto -> bfloat16"),
    ("train", {"seed": 1}, "seed: 0 -> 1"),
    ("train", {"max_length": 50}, "max_length: none -> 50"),
]


@pytest.mark.parametrize(("stage", "change", "reason"), MATTERS)
def test_a_setting_redoes_its_stage_and_those_after_it(
    here: Path, stage: str, change: dict[str, Any], reason: str
) -> None:
    wanted = dict.fromkeys(STAGES, ("fresh", []))
    wanted |= {stage: ("stale", [reason])} | after(stage)
    assert said(pipeline(**{stage: change})) == wanted


@pytest.mark.parametrize(
    ("stage", "change"),
    [
        ("score", {"block_rows": 8}),
        ("score", {"batch_tokens": 100}),
        ("score", {"ranks": 2}),
        ("cluster", {"memory": 1 << 30}),
        ("cluster", {"ranks": 2}),
        ("train", {"zero_stage": 2}),
        ("train", {"gradient_checkpointing": True}),
        ("train", {"keep": 5}),
    ],
)
def test_what_only_changes_speed_redoes_nothing(
    here: Path, stage: str, change: dict[str, Any]
) -> None:
    assert said(pipeline(**{stage: change})) == dict.fromkeys(STAGES, ("fresh", []))


def test_changed_data_are_named(work: Path) -> None:
    tiny.write_jsonl(work / "data.jsonl", tiny.questions(59))
    found = status(pipeline())
    assert found[0].state == "stale"
    old, new = artifacts.read_header(work / "work/signatures.zarr", "signatures"), found[0].expected
    assert old.key == found[0].key != new
    (reason,) = found[0].reasons
    assert reason.startswith(f"data.jsonl: {old.inputs[0]['sha256'][:12]} -> ")
    assert {s.stage: (s.state, s.reasons) for s in found[1:]} == after("score")


def test_another_model_is_named(work: Path) -> None:
    old = artifacts.read_header(work / "work/signatures.zarr", "signatures").extra["space"]["model"]
    tiny.save(work / "model", seed=1)
    found = said(pipeline())
    assert found["score"][1][0].startswith(f"model: {old[:12]} -> ")
    assert [reason.split(":")[0] for reason in found["train"][1]] == [
        "model",
        "allocate will run again",
    ]


def test_touched_files_are_fresh(work: Path) -> None:
    for path in [work / "data.jsonl", *(work / "model").iterdir()]:
        path.touch()
    assert said(pipeline()) == dict.fromkeys(STAGES, ("fresh", []))


def test_missing_is_missing_and_what_was_made_from_it_stays_fresh(work: Path) -> None:
    """Equal keys, equal results: clusters need not be made again because signatures are."""
    shutil.rmtree(work / "work" / "signatures.zarr")
    wanted = dict.fromkeys(STAGES, ("fresh", [])) | {"score": ("missing", ["not made yet"])}
    assert said(pipeline()) == wanted
    (work / "work" / "selection.jsonl").unlink()
    found = said(pipeline())
    assert found["select"] == ("missing", ["not made yet"])
    assert found["allocate"] == ("stale", ["select will run again"])  # its lines may be others


def test_nothing_made_at_all(work: Path) -> None:
    shutil.rmtree(work / "work")
    assert said(pipeline()) == {
        "score": ("missing", ["not made yet"]),
        "cluster": ("missing", ["score will run"]),
        "select": ("missing", ["cluster will run"]),
        "allocate": ("missing", ["select will run"]),
        "train": ("missing", ["allocate will run"]),
    }


def test_what_is_no_artifact_of_its_stage_is_stale(work: Path) -> None:
    shutil.rmtree(work / "work/clusters.zarr")
    shutil.copytree(work / "work/signatures.zarr", work / "work/clusters.zarr")
    path = Path("work/clusters.zarr")
    assert said(pipeline())["cluster"] == ("stale", [f"{path} holds signatures, not clusters"])


def test_a_selection_edited_by_hand_redoes_what_comes_after(work: Path) -> None:
    path = work / "work" / "selection.jsonl"
    path.write_text(path.read_text().replace('"tokens": 38', '"tokens": 37'))
    found = said(pipeline())
    assert found["select"] == ("fresh", [])
    state, (reason,) = found["allocate"]
    assert state == "stale"
    assert reason.startswith("selection.jsonl: ")


def test_files_that_select_reads_are_inputs(work: Path) -> None:
    for name, text in (("keep.txt", "3\n"), ("drop.txt", "5\n")):
        (work / name).write_text(text)
    lists: dict[str, Any] = {"must_include": Path("keep.txt"), "exclude": Path("drop.txt")}
    chain = pipeline(select={**lists, "stratify": "answer", "fraction": 0.9})
    assert said(chain)["select"][1][-2:] == [
        f"{name}: none -> {file_sha256(work / name)[:12]}" for name in ("keep.txt", "drop.txt")
    ]
    run(chain, since="select", until="select")
    assert said(chain, until="select")["select"] == ("fresh", [])
    old = file_sha256(work / "keep.txt")[:12]
    (work / "keep.txt").write_text("4\n")
    new = file_sha256(work / "keep.txt")[:12]
    assert said(chain, until="select")["select"] == ("stale", [f"keep.txt: {old} -> {new}"])


def test_a_target_is_an_input(work: Path) -> None:
    target = Path("work/signatures.zarr")
    chain = pipeline(select={"target": target})
    key = artifacts.read_header(target, "signatures").key
    reasons = ["target: none -> true", f"signatures.zarr: none -> {key[:12]}"]
    assert said(chain)["select"] == ("stale", reasons)
    run(chain, since="select", until="select")
    assert said(chain, until="select")["select"] == ("fresh", [])


def test_a_plan_measured_in_signature_space_is_fresh_once_made(work: Path) -> None:
    chain = pipeline(allocate={"signatures": Path("work/signatures.zarr")})
    assert said(chain)["allocate"] == ("stale", ["measured: none -> true"])
    run(chain, since="allocate", until="allocate")
    assert said(chain, until="allocate")["allocate"] == ("fresh", [])


def test_a_run_that_goes_on_from_another_is_made_from_its_model(here: Path) -> None:
    old = find_model("model").weights_sha256[:12]
    new = find_model("work/run/model").weights_sha256[:12]
    chain = pipeline(train={"init_from": Path("work/run")})
    assert said(chain)["train"] == ("stale", [f"model: {old} -> {new}"])


def test_half_done_signatures_are_incomplete(work: Path) -> None:
    """61 of 101 blocks, here 2 of 4: the real array that a killed run leaves."""
    from stages.score import blocks, resuming

    assert PENDING == blocks.PENDING
    output = work / "work" / "signatures.zarr"
    key = artifacts.read_header(output, "signatures").key
    shutil.rmtree(output)
    group = resuming.open_partial(output, prepared.ROWS, 64, prepared.BLOCK, key, False)
    group["status"][: 2 * prepared.BLOCK] = 0
    assert said(pipeline())["score"] == ("incomplete", ["2 of 4 blocks"])
    note = "signatures.zarr.partial has 2 of 4 blocks of other settings; only --force drops it"
    assert said(pipeline(score={"seed": 5}))["score"] == ("missing", [note])
    del group.attrs["partial_key"]  # killed while it was being created
    assert said(pipeline())["score"] == ("missing", ["not made yet"])


def test_a_stopped_training_is_incomplete(work: Path) -> None:
    run = work / "work" / "run"
    half = artifacts.partial(run)
    key = json.loads((run / "run.json").read_text())["key"]
    from stages.train.settings import Settings

    names = Settings.__dataclass_fields__
    values = dict.fromkeys(names) | {"key": key, "data": [], "eval_data": []}
    (half / "checkpoints" / "step-00000003").mkdir(parents=True)
    (half / "checkpoints" / "step-00000003" / "checkpoint.json").write_text("{}")
    (half / "settings.json").write_text(json.dumps(values))
    assert said(pipeline())["train"] == ("fresh", [])
    shutil.rmtree(run)
    assert said(pipeline())["train"] == ("incomplete", ["a checkpoint at step 3"])


def test_keys_are_those_of_the_outputs_where_they_can_be(here: Path) -> None:
    found = keys(pipeline())
    for stage in ("score", "cluster", "select"):
        kind = LINKS[stage].kind
        assert (
            found[stage] == artifacts.read_header(here / "work" / prepared.OUTPUTS[stage], kind).key
        )
    assert len(set(found.values())) == 5
    assert UNSEEN not in found.values()


def test_keys_do_not_depend_on_what_was_made(work: Path) -> None:
    found = keys(pipeline())
    shutil.rmtree(work / "work")
    assert keys(pipeline()) == found


@pytest.mark.parametrize(("stage", "change", "_"), MATTERS)
def test_keys_change_for_a_stage_and_those_after_it(
    here: Path, stage: str, change: dict[str, Any], _: str
) -> None:
    old, new = keys(pipeline()), keys(pipeline(**{stage: change}))
    first = STAGES.index(stage)
    assert [name for name in STAGES if old[name] != new[name]] == list(STAGES[first:])


def test_windows(here: Path) -> None:
    chain = pipeline(score={"seed": 1}, select={"seed": 1})
    assert list(said(chain, until="cluster")) == ["score", "cluster"]
    # The map is taken as it is, whatever would become of it.
    assert said(chain, since="select", until="allocate") == {
        "select": ("stale", ["seed: 0 -> 1"]),
        "allocate": ("stale", ["select will run again"]),
    }
    for window, message in (
        (("train", "score"), "train comes after score; swap --from and --until"),
        (("fly", None), "this pipeline has no stage 'fly'; its stages are " + ", ".join(STAGES)),
    ):
        with pytest.raises(SettingError) as error:
            status(chain, *window)
        assert str(error.value) == message


def test_from_needs_its_input(work: Path) -> None:
    shutil.rmtree(work / "work" / "clusters.zarr")
    with pytest.raises(ArtifactMissingError) as error:
        status(pipeline(), since="select")
    assert str(error.value) == (
        "work/clusters.zarr does not exist, and --from select begins with it; leave --from out"
    )


def test_a_state_as_json() -> None:
    state = State("score", "stale", Path("a/b"), ["x: 1 -> 2"], "k", "l")
    assert state.to_json() == {
        "stage": "score",
        "state": "stale",
        "output": "a/b",
        "reasons": ["x: 1 -> 2"],
        "key": "k",
        "expected": "l",
        "fresh": False,
    }
