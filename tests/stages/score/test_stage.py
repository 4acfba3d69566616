"""The score stage on real files: the artifact, freshness, resuming after a kill, odd rows."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from formats import artifacts
from formats.data import DataOptions
from formats.errors import ArtifactError, ArtifactMissingError, OutputBusyError, SettingError
from formats.signatures import STATUS_NAMES, Signatures
from stages.score import resuming, score, spent
from stages.score.settings import Job
from stages.score.stage import ScoreSettings, Target
from tests import tiny
from tests.synthetic import Notes

SMALL = ScoreSettings(rank=8, dims=64, max_length=64)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.save(tmp_path_factory.mktemp("model")))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the processes that these tests start."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def arrays(path: Path) -> dict[str, bytes]:
    """Every array's bytes, by the documented schema alone."""
    group = zarr.open_group(path, mode="r")
    return {name: np.asarray(array[:]).tobytes() for name, array in group.arrays()}


def test_the_artifact_is_what_the_schema_says(tmp_path: Path, base: str) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(40))
    score([str(data)], base, tmp_path / "s.zarr", settings=SMALL, block_rows=16)
    attributes = json.loads((tmp_path / "s.zarr" / "zarr.json").read_text())["attributes"]
    assert attributes["format"] == "cluster-cli/signatures"
    assert attributes["format_version"] == "1.0"
    assert attributes["complete"] is True
    assert attributes["inputs"][0]["rows"] == 40
    assert attributes["dataset"]["sources"][0]["path"] == "data.jsonl"
    assert attributes["space"]["rank"] == 8
    group = zarr.open_group(tmp_path / "s.zarr", mode="r")
    schema = {name: (array.shape, str(array.dtype)) for name, array in group.arrays()}
    assert schema == {
        "signature": ((40, 64), "float16"),
        "example_id": ((40, 16), "uint8"),
        "norm": ((40,), "float32"),
        "loss": ((40,), "float32"),
        "prompt_tokens": ((40,), "int32"),
        "response_tokens": ((40,), "int32"),
        "status": ((40,), "uint8"),
    }
    assert group["signature"].chunks == (16, 64)
    lengths = np.linalg.norm(group["signature"][:].astype(np.float32), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-3)
    assert not (tmp_path / "s.zarr.partial").exists()
    assert not (tmp_path / "s.zarr.lock").exists()


def test_same_inputs_are_up_to_date_and_touch_the_stamp(tmp_path: Path, base: str) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(5))
    output = tmp_path / "s.zarr"
    score([str(data)], base, output, settings=SMALL)
    os.utime(output / "zarr.json", (1, 1))
    heard = Notes()
    score([str(data)], base, output, settings=SMALL, reporter=heard)
    assert heard.messages == [f"{output} is up to date"]
    assert (output / "zarr.json").stat().st_mtime > 1
    score([str(data)], base, output, settings=SMALL, reporter=heard, force=True)
    assert "read 5 rows of shape qa from 1 source(s)" in heard.messages


@pytest.mark.parametrize(
    "change", [{"rank": 4}, {"dims": 32}, {"max_length": 32}, {"seed": 1}, {"kind": "head"}]
)
def test_every_setting_changes_the_key(tmp_path: Path, base: str, change: dict[str, int]) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(3))
    one = score([str(data)], base, tmp_path / "a", settings=SMALL)
    settings = ScoreSettings(**{**vars(SMALL), **change})
    other = score([str(data)], base, tmp_path / "b", settings=settings)
    assert one.key != other.key
    assert one.extra["space_id"] != other.extra["space_id"]


def test_block_and_batch_sizes_and_places_do_not_change_the_key(tmp_path: Path, base: str) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(20))
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "copy.jsonl"
    copy.write_bytes(data.read_bytes())
    one = score([str(data)], base, tmp_path / "a", settings=SMALL)
    two = score([str(copy)], base, tmp_path / "b", settings=SMALL, block_rows=3, batch_tokens=100)
    assert one.key == two.key
    a, b = (Signatures.open(tmp_path / name).column("signature") for name in "ab")
    cosine = (a.astype(float) * b.astype(float)).sum(1)
    assert cosine.min() > 0.999


def test_odd_rows_are_counted_and_never_zero_filled_into_use(tmp_path: Path, base: str) -> None:
    rows = tiny.questions(6)
    rows.append(rows[0])
    rows.append({"question": "q" * 200, "answer": "too late"})
    rows.append({"question": "short", "answer": "a" * 200})
    data = tiny.write_jsonl(tmp_path / "data.jsonl", rows)
    heard = Notes()
    header = score([str(data)], base, tmp_path / "s", settings=SMALL, reporter=heard)
    signatures = Signatures.open(tmp_path / "s")
    names = [STATUS_NAMES[code] for code in signatures.column("status")]
    assert names == ["ok"] * 6 + ["duplicate", "prompt_too_long", "truncated"]
    assert header.stats["usable"] == 7
    assert signatures.column("norm")[6] == signatures.column("norm")[0]
    assert not signatures.column("signature")[6:8].any()
    assert heard.warnings == [
        "rows without a signature of their own: 1 prompt_too_long, 1 duplicate"
    ]


def test_a_row_whose_loss_is_not_finite_is_set_apart(tmp_path: Path) -> None:
    import torch

    model = tiny.model()
    with torch.no_grad():
        model.model.embed_tokens.weight[ord("Z") - 33 + 3] = float("nan")  # "Z"'s byte-level token
    model.save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    rows = [*tiny.questions(3), {"question": "Z", "answer": "1"}, *tiny.questions(5)[3:]]
    data = tiny.write_jsonl(tmp_path / "data.jsonl", rows)
    header = score([str(data)], str(tmp_path / "model"), tmp_path / "s", settings=SMALL)
    assert header.stats["status"]["nonfinite"] == 1
    signatures = Signatures.open(tmp_path / "s")
    assert STATUS_NAMES[signatures.column("status")[3]] == "nonfinite"
    assert np.isfinite(signatures.column("signature")).all()


WORKER = """
import sys
from pathlib import Path
from stages.score import score
from stages.score.stage import ScoreSettings
score([sys.argv[1]], sys.argv[2], Path(sys.argv[3]), ranks=int(sys.argv[4]), block_rows=4,
      batch_tokens=64, settings=ScoreSettings(rank=8, dims=64, max_length=64))
"""


@pytest.mark.parametrize(
    ("kills", "most_ranks"), [(2, 1), pytest.param(20, 3, marks=pytest.mark.slow)]
)
def test_kill_9_at_random_moments_loses_at_most_a_block(
    tmp_path: Path, base: str, kills: int, most_ranks: int
) -> None:
    """With several ranks the number changes from run to run, and one worker or all are killed."""
    rows = 300 if most_ranks == 1 else 2000
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(rows))
    whole, output = tmp_path / "whole.zarr", tmp_path / "killed.zarr"
    score([str(data)], base, whole, settings=SMALL, block_rows=4, batch_tokens=64)
    partial = artifacts.partial(output)
    rng = random.Random(kills)
    finished = [0]
    for number in range(kills):
        ranks = rng.randint(1, most_ranks)
        command = [sys.executable, "-c", WORKER, str(data), base, str(output), str(ranks)]
        process = subprocess.Popen(
            command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and _blocks_done(partial) <= finished[-1]:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.15))
        _kill(process, rng)
        process.wait(timeout=120)
        assert not output.exists(), f"run {number} finished: give the test more rows"
        with pytest.raises(ArtifactMissingError):
            artifacts.read_header(output, "signatures")
        finished.append(_blocks_done(partial))
    assert finished == sorted(finished)
    before = spent.earlier(output)
    header = score([str(data)], base, output, settings=SMALL, block_rows=4, batch_tokens=64)
    assert header.stats["seconds"] > before > 0  # the cost of killed runs is a cost
    assert not spent.place(output).exists()
    assert arrays(output) == arrays(whole)


def _kill(process: subprocess.Popen[bytes], rng: random.Random) -> None:
    """kill -9 of the front process, or of one of the ranks it has started."""
    import psutil

    ranks = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "stages.score.worker" in child.cmdline()
    ]
    if ranks and rng.random() < 0.5:
        rng.choice(ranks).kill()
    else:
        process.kill()


def _blocks_done(partial: Path) -> int:
    try:
        return int((zarr.open_group(partial, mode="r")["status"][:] != 255).sum()) // 4
    except Exception:
        return 0


def begun(output: Path, facts: dict[str, Any]) -> Any:
    """What a run with another key leaves that was killed after the first of three blocks."""
    group = resuming.open_partial(output, 48, 8, 16, "another", False, facts)
    group["status"][:16] = 0
    return group


def test_a_half_done_output_with_other_settings_is_refused(tmp_path: Path, base: str) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(3))
    output = tmp_path / "s.zarr"
    job = Job(
        (str(data),), base, output, SMALL, DataOptions(), None, (), (), None, None, False, False
    )
    facts = Target.of(job).facts
    fix = "run the old command to finish it, or add --force to start over"
    for changed, said in (
        ({"rank": 99}, f"rank 99 instead of {SMALL.rank}"),
        ({"model": "0" * 64}, "another model"),
        ({"data": ["0" * 64], "limit": 7}, "other data, limit 7 instead of None"),
    ):
        begun(output, {**facts, **changed})
        with pytest.raises(ArtifactError) as error:
            score([str(data)], base, output, settings=SMALL)
        assert str(error.value) == f"{output}.partial is half done with {said}; {fix}"
        shutil.rmtree(artifacts.partial(output))
    begun(output, {})  # of a version that did not note them
    with pytest.raises(ArtifactError) as error:
        score([str(data)], base, output, settings=SMALL)
    assert str(error.value) == (
        f"{output}.partial is half done with other data, model or settings; {fix}"
    )
    score([str(data)], base, output, settings=SMALL, force=True)


def test_a_mistake_that_cost_nothing_does_not_stand_in_the_way(tmp_path: Path, base: str) -> None:
    """A wrong pattern is only found with the model, when the output is begun; nothing is done yet."""
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(3))
    output = tmp_path / "s.zarr"
    with pytest.raises(SettingError, match="--layers 'nothing' matches no linear layer"):
        score([str(data)], base, output, settings=replace(SMALL, layers="nothing"))
    assert artifacts.partial(output).exists()
    assert score([str(data)], base, output, settings=SMALL).stats["usable"] == 3


def test_a_second_writer_is_told_who_holds_the_output(tmp_path: Path, base: str) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(3))
    with (
        artifacts.locked(tmp_path / "s"),
        pytest.raises(OutputBusyError, match=rf"is being written by process {os.getpid()} on "),
    ):
        score([str(data)], base, tmp_path / "s", settings=SMALL)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SettingError, match="^--kind 'x' is unknown; use gradient, head, "):
        ScoreSettings(kind="x")
    with pytest.raises(SettingError, match="^--layers goes with --kind gradient; drop --layers$"):
        ScoreSettings(kind="head", layers="last:2")
    with pytest.raises(SettingError, match="^--max-length must be at least 1$"):
        ScoreSettings(max_length=0)


def test_known_rows_are_copied_to_the_bit_and_only_new_ones_computed(
    tmp_path: Path, base: str
) -> None:
    rows = tiny.questions(60)
    data = tiny.write_jsonl(tmp_path / "data.jsonl", rows)
    score([str(data)], base, tmp_path / "old.zarr", settings=SMALL)
    changed = [
        *rows[:20],
        *({"question": f"new {i}", "answer": str(i)} for i in range(10)),
        *rows[30:],
    ]
    changed += [changed[25], {"question": "last", "answer": "one"}]
    tiny.write_jsonl(data, changed)
    old = Signatures.open(tmp_path / "old.zarr")
    score([str(data)], base, tmp_path / "new.zarr", settings=SMALL, reuse=[tmp_path / "old.zarr"])
    fresh = score([str(data)], base, tmp_path / "fresh.zarr", settings=SMALL)
    new = Signatures.open(tmp_path / "new.zarr")
    kept = [*range(20), *range(30, 60)]
    for name in ("signature", "norm", "loss", "prompt_tokens", "response_tokens", "status"):
        assert new.column(name)[kept].tobytes() == old.column(name)[kept].tobytes()
    assert new.header.key == fresh.key
    assert (new.header.stats["reused"], fresh.stats["reused"]) == (50, 0)
    recomputed = Signatures.open(tmp_path / "fresh.zarr")
    assert new.column("status").tobytes() == recomputed.column("status").tobytes()
    assert new.column("prompt_tokens").tobytes() == recomputed.column("prompt_tokens").tobytes()
    cosine = (new.column("signature").astype(float) * recomputed.column("signature")).sum(1)
    assert cosine[new.column("status") == 0].min() > 0.999


def test_nothing_new_needs_no_model(
    tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(9))
    output = tmp_path / "s.zarr"
    score([str(data)], base, output, settings=SMALL)
    tiny.write_jsonl(data, tiny.questions(9)[::-1])
    from stages import models

    monkeypatch.delattr(models, "load_model")
    assert score([str(data)], base, output, settings=SMALL).stats["usable"] == 9


def test_signatures_of_another_space_are_not_mixed_in(tmp_path: Path, base: str) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(3))
    score(
        [str(data)], base, tmp_path / "old", settings=ScoreSettings(rank=4, dims=64, max_length=64)
    )
    with pytest.raises(ArtifactError) as error:
        score([str(data)], base, tmp_path / "new", settings=SMALL, reuse=[tmp_path / "old"])
    assert str(error.value) == (
        f"--reuse {tmp_path}/old: rank is 4 there, 8 here; "
        "score with the same settings, or drop --reuse"
    )


def test_several_ranks_give_the_same_bytes(tmp_path: Path, base: str) -> None:
    import torch

    torch.set_num_threads(2)  # the ranks would have a core each, and take two threads like this one
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(50))
    more = {"settings": SMALL, "block_rows": 8}
    score([str(data)], base, tmp_path / "one.zarr", **more)
    score([str(data)], base, tmp_path / "two.zarr", **more, ranks=2)
    assert arrays(tmp_path / "one.zarr") == arrays(tmp_path / "two.zarr")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.jsonl", "one.zarr", "two.zarr"]


def test_ranks_of_somebody_elses_launch_work_together(tmp_path: Path, base: str) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(20))
    score([str(data)], base, tmp_path / "one.zarr", settings=SMALL, block_rows=4)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    command += ["2", "-m", "cluster_cli", "score", str(data), "-m", base]
    command += ["-o", str(tmp_path / "two.zarr"), "--rank", "8", "--dims", "64"]
    command += ["--max-length", "64", "--block-rows", "4"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    assert arrays(tmp_path / "one.zarr") == arrays(tmp_path / "two.zarr")


@pytest.mark.parametrize(
    ("kind", "dims"), [("head", 64), ("embedding", 32), ("loss", 1), ("gradient", 64)]
)
def test_every_kind_has_its_width_and_the_same_losses(
    tmp_path: Path, base: str, kind: str, dims: int
) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(8))
    score([str(data)], base, tmp_path / "s", settings=replace(SMALL, kind=kind))
    score([str(data)], base, tmp_path / "g", settings=SMALL)
    signatures, reference = Signatures.open(tmp_path / "s"), Signatures.open(tmp_path / "g")
    assert signatures.dims == dims
    np.testing.assert_allclose(signatures.column("loss"), reference.column("loss"), rtol=1e-5)
    lengths = np.linalg.norm(signatures.column("signature").astype(float), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-3)


def test_a_trajectory_is_the_losses_at_its_checkpoints(tmp_path: Path, base: str) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(8))
    later = str(tiny.save(tmp_path / "later", seed=5))
    settings = replace(SMALL, kind="trajectory")
    score([str(data)], base, tmp_path / "t", settings=settings, checkpoints=[base, later])
    trajectory = Signatures.open(tmp_path / "t")
    recovered = trajectory.column("signature").astype(float) * trajectory.column("norm")[:, None]
    for place, model in enumerate((base, later)):
        score([str(data)], model, tmp_path / str(place), settings=replace(SMALL, kind="loss"))
        loss = Signatures.open(tmp_path / str(place)).column("loss")
        np.testing.assert_allclose(recovered[:, place], loss, rtol=2e-3)
    with pytest.raises(SettingError, match="^--checkpoint goes with --kind trajectory"):
        score([str(data)], base, tmp_path / "x", settings=SMALL, checkpoints=[base])


def test_a_proxy_signs_and_the_model_counts_tokens(tmp_path: Path, base: str) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(8))
    tiny.model(seed=9).save_pretrained(tmp_path / "proxy")
    with_bos = tiny.tokenizer()
    with_bos.chat_template = (
        "{% for m in messages %}<s>{{ m.content }}</s>{% if m.role == 'user' %}!!{% endif %}"
        "{% endfor %}"
    )
    with_bos.save_pretrained(tmp_path / "proxy")
    proxy = str(tmp_path / "proxy")
    score([str(data)], base, tmp_path / "both", settings=SMALL, proxy=proxy)
    score([str(data)], base, tmp_path / "model", settings=SMALL)
    score([str(data)], proxy, tmp_path / "proxied", settings=SMALL)
    both, model, proxied = (
        Signatures.open(tmp_path / name) for name in ("both", "model", "proxied")
    )
    assert both.column("signature").tobytes() == proxied.column("signature").tobytes()
    assert both.column("prompt_tokens").tobytes() == model.column("prompt_tokens").tobytes()
    assert model.column("prompt_tokens").tobytes() != proxied.column("prompt_tokens").tobytes()
    assert both.space_id == proxied.space_id


def test_a_warm_up_changes_the_model_and_leaves_nothing_behind(tmp_path: Path, base: str) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(40))
    warm = replace(SMALL, warmup_fraction=0.5)
    for name in ("a", "b"):
        score([str(data)], base, tmp_path / name, settings=warm)
    score([str(data)], base, tmp_path / "cold", settings=SMALL)
    a, b, cold = (Signatures.open(tmp_path / name) for name in ("a", "b", "cold"))
    assert a.column("signature").tobytes() == b.column("signature").tobytes()
    assert a.column("loss").mean() < cold.column("loss").mean()
    assert a.space_id != cold.space_id
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "cold", "data.jsonl"]


def test_a_lora_warm_up_needs_no_more_than_its_name(tmp_path: Path, base: str) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(40))
    warm = replace(SMALL, warmup_fraction=0.5, warmup="lora")
    score([str(data)], base, tmp_path / "a", settings=warm)
    score([str(data)], base, tmp_path / "cold", settings=SMALL)
    a, cold = Signatures.open(tmp_path / "a"), Signatures.open(tmp_path / "cold")
    assert a.column("loss").mean() < cold.column("loss").mean()


def test_an_order_the_template_refuses_is_named_before_any_model_is_loaded(
    tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from formats.errors import DataError
    from stages import models

    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
        "{% endif %}{{ m.content }}</s>{% endfor %}"
    )
    tiny.model().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    rows = [{"messages": turns}] * 3
    rows.append({"messages": [{"role": "system", "content": "s"}, *turns]})
    data = tiny.write_jsonl(tmp_path / "data.jsonl", rows)
    monkeypatch.delattr(models, "load_model")
    with pytest.raises(DataError, match=r"data\.jsonl:4 \(row 3\): .*no system"):
        score([str(data)], str(tmp_path / "model"), tmp_path / "s", settings=SMALL)


def test_a_dry_run_says_what_is_new_and_writes_nothing(tmp_path: Path, base: str) -> None:
    rows = tiny.questions(30)
    data = tiny.write_jsonl(tmp_path / "data.jsonl", rows)
    score([str(data)], base, tmp_path / "s", settings=SMALL)
    tiny.write_jsonl(data, [*rows, rows[0], {"question": "new", "answer": "one"}])
    before = (tmp_path / "s" / "zarr.json").read_bytes()
    heard = Notes()
    header = score([str(data)], base, tmp_path / "s", settings=SMALL, dry_run=True, reporter=heard)
    assert (header.stats["rows"], header.stats["compute"]) == (32, 1)
    assert header.stats["bytes"] == 32 * (2 * 64 + 16 + 16 + 1)
    weights = sum(weight.numel() for weight in tiny.model().parameters())
    assert header.stats["flops"] == header.stats["tokens"] * 4 * weights
    assert header.stats["tokens_per_second"] > 0
    assert heard.messages[-1].startswith("would compute 1 of 32 rows: ")
    assert (tmp_path / "s" / "zarr.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl", "s"]


def test_limit_reads_the_first_rows_only(tmp_path: Path, base: str) -> None:
    data = tiny.write_jsonl(tmp_path / "data.jsonl", tiny.questions(30))
    header = score([str(data)], base, tmp_path / "s", settings=SMALL, options=DataOptions(limit=7))
    assert header.stats["rows"] == 7
