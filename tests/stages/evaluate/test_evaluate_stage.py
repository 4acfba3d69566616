"""The stage on a tiny model: figures against plain transformers, leaks, resumption, keys."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from formats.data import DataOptions, open_dataset
from formats.errors import ArtifactError, DataError, ModelError, SettingError
from formats.evaluation import Evaluation, paired
from stages.evaluate import EvaluateSettings, evaluate, expected_key
from stages.evaluate.answers import compare
from stages.evaluate.parts import Work, compute, pending
from stages.evaluate.target import Target
from stages.reporting import Silent
from stages.validate import validate
from stages.workers import World
from tests import prepared, tiny

FIELDS = DataOptions(fields=(("prompt", "question"), ("response", "answer")))
PROMPT = "User:\n{}\n\nAssistant:\n"


class Ears:
    """A reporter that remembers."""

    quiet = True

    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.said.append("warning: " + text)

    def progress(self, title: str, total: float, unit: str = "rows") -> Any:
        return Silent().progress(title, total, unit)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    tiny.save(folder / "model")
    rows = [{**row, "kind": "ab"[i % 2]} for i, row in enumerate(tiny.questions(12))]
    tiny.write_jsonl(folder / "dev.jsonl", rows)
    choices = [
        {"question": f"Which is {i}?", "choices": ["x", f"{i}", "longer yet"], "answer": i % 3}
        for i in range(6)
    ]
    tiny.write_jsonl(folder / "choices.jsonl", choices)
    return folder


def loss_of(model: Any, prompt: str, answer: str) -> float:
    """The summed loss of an answer's tokens, one row at a time, by transformers alone."""
    tokenizer = tiny.tokenizer()
    before = tokenizer(PROMPT.format(prompt), add_special_tokens=False)["input_ids"]
    after = tokenizer(answer, add_special_tokens=False)["input_ids"]
    ids = torch.tensor([before + after])
    with torch.no_grad():
        logits = model(ids).logits[0, len(before) - 1 : -1]
    return float(torch.nn.functional.cross_entropy(logits, ids[0, len(before) :], reduction="sum"))


def test_losses_are_those_of_one_row_at_a_time(place: Path, tmp_path: Path) -> None:
    output = tmp_path / "e.json"
    settings = EvaluateSettings(by=("kind",), samples=200)
    header = evaluate(
        place / "model", [str(place / "dev.jsonl")], output, settings=settings, batch_tokens=150
    )
    found = Evaluation.open(output)
    model = tiny.model()
    rows = [json.loads(line) for line in (place / "dev.jsonl").read_text().splitlines()]
    sums = [loss_of(model, row["question"], row["answer"] + "</s>") for row in rows]
    assert found.column("tokens").tolist() == [len(row["answer"]) + 1 for row in rows]
    assert found.column("loss") * found.column("tokens") == pytest.approx(np.array(sums), rel=1e-4)
    overall = found.results["overall"]
    assert overall["token_loss"]["value"] == pytest.approx(
        sum(sums) / found.column("tokens").sum(), rel=1e-4
    )
    assert found.examples["groups"] == {"kind": [row["kind"] for row in rows]}
    assert [v["loss"]["examples"] for v in found.results["by"]["kind"].values()] == [6, 6]
    assert header.stats["overall"] == overall
    assert header.stats["overlap"] is None
    assert validate(output) == "evaluation, 12 examples, 2 metrics"


def test_choices_are_compared_by_likelihood(place: Path, tmp_path: Path) -> None:
    output = tmp_path / "e.json"
    evaluate(place / "model", [str(place / "choices.jsonl")], output, options=FIELDS)
    found, model = Evaluation.open(output), tiny.model()
    for i, line in enumerate((place / "choices.jsonl").read_text().splitlines()):
        row = json.loads(line)
        wanted = [-loss_of(model, row["question"], text) for text in row["choices"]]
        assert found.examples["log_likelihood"][i] == pytest.approx(wanted, rel=1e-4)
        by_character = [v / len(t) for v, t in zip(wanted, row["choices"], strict=True)]
        assert found.column("accuracy")[i] == (np.argmax(wanted) == row["answer"])
        assert found.column("accuracy_normalised")[i] == (np.argmax(by_character) == row["answer"])
        right = row["choices"][row["answer"]]
        total = loss_of(model, row["question"], right + "</s>")
        assert found.column("loss")[i] == pytest.approx(total / (len(right) + 1), rel=1e-4)


def test_answers_are_greedy_and_end_with_the_turn(place: Path, tmp_path: Path) -> None:
    """Batches padded on the left against one prompt at a time, argmax by argmax."""
    output = tmp_path / "e.json"
    settings = EvaluateSettings(generate=True, max_new_tokens=5)
    evaluate(place / "model", [str(place / "dev.jsonl")], output, settings=settings)
    found, model, tokenizer = Evaluation.open(output), tiny.model(), tiny.tokenizer()
    for i, line in enumerate((place / "dev.jsonl").read_text().splitlines()):
        row = json.loads(line)
        ids = tokenizer(PROMPT.format(row["question"]), add_special_tokens=False)["input_ids"]
        made: list[int] = []
        for _ in range(5):
            with torch.no_grad():
                token = int(model(torch.tensor([ids + made])).logits[0, -1].argmax())
            if token == tokenizer.eos_token_id:
                break
            made.append(token)
        answer = tokenizer.decode(made, skip_special_tokens=True).strip()
        assert found.examples["answer"][i] == answer
        assert found.column("f1")[i] == compare(answer, row["answer"])["f1"]


def test_code_is_run_and_its_outcome_kept(place: Path, tmp_path: Path) -> None:
    """No tiny model writes a program; that one which is empty passes an empty test is enough."""
    rows = [
        {"question": f"q{i}", "answer": "x", "test_list": ["assert " + ("True", "1 == 2")[i % 2]]}
        for i in range(4)
    ]
    data = tiny.write_jsonl(tmp_path / "d.jsonl", rows)
    model = tiny.model()
    model.get_output_embeddings().weight.data.zero_()  # greedy: token 0, <pad>, nothing to read
    model.save_pretrained(tmp_path / "mute")
    tiny.tokenizer().save_pretrained(tmp_path / "mute")
    settings = EvaluateSettings(run_code=True, max_new_tokens=2)
    ears = Ears()
    try:
        evaluate(tmp_path / "mute", [str(data)], tmp_path / "e", settings=settings, reporter=ears)
    except SettingError as error:
        pytest.skip(error.problem)
    found = Evaluation.open(tmp_path / "e")
    assert found.examples["outcome"] == ["passed", "AssertionError"] * 2
    assert found.results["overall"]["pass_at_1"]["value"] == 0.5
    assert "exact_match" not in found.examples
    assert ears.said[1] == (
        "warning: --run-code runs programs written by a model: each in a process of its own, with "
        "limits of time and memory, without network, and with no file to write outside a temporary "
        "folder"
    )


def test_equal_keys_do_nothing_and_settings_make_others(place: Path, tmp_path: Path) -> None:
    output, data = tmp_path / "e.json", [str(place / "dev.jsonl")]
    header = evaluate(place / "model", data, output)
    assert header.key == expected_key(place / "model", data)
    before, ears = output.read_bytes(), Ears()
    evaluate(place / "model", data, output, batch_tokens=64, reporter=ears)
    assert ears.said == [f"{output} is up to date"]
    assert output.read_bytes() == before
    others = [
        expected_key(place / "model", data, EvaluateSettings(**changed))
        for changed in (
            {"by": ("kind",)},
            {"generate": True},
            {"max_length": 64},
            {"samples": 200},
            {"dtype": "float32"},
        )
    ]
    assert len({header.key, *others}) == 6
    kept = (place / "dev.jsonl").read_text()
    (place / "dev.jsonl").write_text(kept + kept.splitlines()[0].replace("What", "Say what") + "\n")
    assert expected_key(place / "model", data) != header.key
    (place / "dev.jsonl").write_text(kept)


def test_rows_that_were_trained_on_are_refused(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    chain = prepared.untouched(tmp_path_factory)
    run, output = chain / "work" / "run", tmp_path / "e.json"
    rows = tiny.questions(70)
    lines = (chain / "work" / "selection.jsonl").read_text().splitlines()
    first = json.loads(lines[1])
    leaking = tiny.write_jsonl(tmp_path / "leak.jsonl", [rows[69], rows[first["row"]]])
    with pytest.raises(DataError) as error:
        evaluate(run, [str(leaking)], output)
    assert str(error.value) == (
        f"1 of 2 rows were trained on in {run}: row 1 ({leaking}:2, id {first['id']}); leave them "
        "out of the data, or add --allow-overlap to count them all the same"
    )
    assert not output.exists()
    ears = Ears()
    header = evaluate(run, [str(leaking)], output, allow_overlap=True, reporter=ears)
    assert header.stats["overlap"] == 1
    assert ears.said[0] == "warning: 1 of 2 rows were trained on"
    with pytest.raises(DataError):  # also when what was allowed is up to date
        evaluate(run, [str(leaking)], output)
    clean = tiny.write_jsonl(tmp_path / "clean.jsonl", rows[60:])
    header = evaluate(run / "run.json", [str(clean)], output)
    assert header.stats["overlap"] == 0
    assert header.params["max_length"] == 1024
    trained, base = Evaluation.open(output), tmp_path / "base.json"
    evaluate(chain / "model", [str(clean)], base)
    top_RN, bottom_RN = paired([trained, Evaluation.open(base)], "token_loss")
    assert top_RN.shape == bottom_RN.shape == (2, 10)
    assert top_RN[0].sum() < top_RN[1].sum()  # it has learned something


def test_a_run_without_its_allocation_cannot_vouch_for_its_rows(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    chain = prepared.copy(tmp_path_factory, tmp_path / "chain")
    run, data = chain / "work" / "run", tiny.write_jsonl(tmp_path / "d.jsonl", tiny.questions(3))
    (chain / "work" / "allocation").rename(chain / "away")
    with pytest.raises(ArtifactError) as error:
        evaluate(run, [str(data)], tmp_path / "e.json")
    assert str(error.value) == (
        f"the rows that {run} was trained on cannot be told: {chain}/work/allocation does not exist; "
        "bring it back, or add --allow-overlap to evaluate without looking for them"
    )
    ears = Ears()
    evaluate(run, [str(data)], tmp_path / "e.json", allow_overlap=True, reporter=ears)
    assert ears.said[0].startswith(f"warning: the allocation of {run} cannot be read: ")


KILLED = """
import os, signal, sys
from pathlib import Path
from formats import artifacts
from stages.evaluate import EvaluateSettings, evaluate
real, left = artifacts.write_json, [3]
def write(path, value):
    real(path, value)
    if path.name.startswith("part-"):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
artifacts.write_json = write
evaluate(sys.argv[1], [sys.argv[2]], sys.argv[3], batch_tokens=100)
"""


def test_a_killed_evaluation_goes_on_where_it_was(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, data = tmp_path / "e.json", str(place / "dev.jsonl")
    arguments = [sys.executable, "-c", KILLED, str(place / "model"), data, str(output)]
    done = subprocess.run(
        arguments, env=prepared.ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    partial = output.with_name("e.json.partial")
    parts = sorted(partial.glob("part-*.json"))
    assert len(parts) == 3
    with pytest.raises(ArtifactError) as error:
        evaluate(place / "model", [data], output, settings=EvaluateSettings(samples=200))
    assert str(error.value) == (
        f"{partial} is half done with samples 200 instead of 1000; run the old command to finish it, "
        "or add --force to start over"
    )
    marks = [path.stat().st_mtime_ns for path in parts]
    ears = Ears()
    seen: list[int] = []
    real = Work.results

    def look(self: Work, folder: Path) -> Any:
        seen.extend(path.stat().st_mtime_ns for path in parts)
        return real(self, folder)

    with monkeypatch.context() as patch:
        patch.setattr(Work, "results", look)
        evaluate(place / "model", [data], output, reporter=ears)
    assert seen == marks  # nothing was computed again
    assert ears.said[1].startswith("resuming: 3 of ")
    assert not partial.exists()
    whole = tmp_path / "whole.json"
    evaluate(place / "model", [data], whole, batch_tokens=100)
    assert Evaluation.open(output).examples == Evaluation.open(whole).examples


def test_wrong_names_show_before_anything_is_computed(place: Path, tmp_path: Path) -> None:
    data = [str(place / "dev.jsonl")]
    with pytest.raises(SettingError) as error:
        evaluate(
            place / "model", data, tmp_path / "e.json", settings=EvaluateSettings(by=("kinds",))
        )
    assert str(error.value) == (
        "no row has a column 'kinds' to group by; there are question, answer, kind"
    )
    assert not list((tmp_path / "e.json.partial").glob("part-*"))
    with pytest.raises(
        SettingError, match="there is nothing to evaluate on; give --data or --task"
    ):
        evaluate(place / "model", [], tmp_path / "e.json")
    with pytest.raises(SettingError) as error:
        evaluate(place / "model", data, tmp_path / "e.json", settings=EvaluateSettings(samples=3))
    assert str(error.value) == "samples is 3, it must be 100 or more"
    with pytest.raises(ModelError) as long:
        settings = EvaluateSettings(generate=True, max_new_tokens=500)
        evaluate(place / "model", data, tmp_path / "e.json", settings=settings)
    assert str(long.value) == (
        "the longest prompt has 51 tokens; with 500 new ones that is more than the 512 positions of "
        "the model; lower --max-new-tokens or --max-length"
    )


def test_what_is_no_evaluation_is_never_replaced(place: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(ArtifactError, match="exists and was not made by cluster-cli"):
        evaluate(place / "model", [str(place / "dev.jsonl")], tmp_path / "mine.json")
    assert (tmp_path / "mine.json").read_text() == "{}"


def test_an_adapter_alone_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError) as error:
        evaluate(tmp_path / "adapter", [str(place / "dev.jsonl")], tmp_path / "e.json")
    assert str(error.value) == (
        f"{tmp_path / 'adapter'} is an adapter without a tokenizer; give its run, where model/ has "
        "the adapter added in"
    )


def test_two_ranks_share_the_parts_and_give_the_same(place: Path, tmp_path: Path) -> None:
    data = [str(place / "dev.jsonl"), str(place / "choices.jsonl")]
    target = Target.of(place / "model", data, EvaluateSettings(), FIELDS, False)
    found = []
    with open_dataset(data, target.options) as dataset:
        work = Work.open(target.job(100, False, True), dataset)
        for ranks in (1, 2):
            folder = tmp_path / str(ranks)
            folder.mkdir()
            for rank in range(ranks):
                before = len(list(folder.iterdir()))
                compute(work, folder, World(rank, ranks, rank), Silent())
                assert len(list(folder.iterdir())) > before
            assert not pending(work, folder)
            found.append(work.results(folder)[0])
    assert len(work.parts) > 4
    assert found[0] == found[1]


@pytest.mark.slow
def test_the_figures_do_not_depend_on_the_ranks(place: Path, tmp_path: Path) -> None:
    data = [str(place / "dev.jsonl"), str(place / "choices.jsonl")]
    settings = EvaluateSettings(generate=True, max_new_tokens=3)
    found = []
    for ranks in (1, 2):
        output = tmp_path / f"{ranks}.json"
        evaluate(
            place / "model",
            data,
            output,
            settings=settings,
            options=FIELDS,
            ranks=ranks,
            batch_tokens=100,
        )
        found.append(Evaluation.open(output))
    assert found[0].header.key == found[1].header.key
    assert found[0].examples == found[1].examples
    assert found[0].results == found[1].results


@pytest.mark.slow
def test_a_run_trained_with_lora_is_evaluated_with_its_adapter(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    chain = prepared.copy(tmp_path_factory, tmp_path / "chain")
    train = "train work/allocation -m model -o work/lora --lora 4 --learning-rate 3e-2".split()
    done = prepared.cluster_cli(*train, "--zero-stage", "0", cwd=chain)
    assert done.returncode == 0, done.stderr
    data = [str(tiny.write_jsonl(tmp_path / "d.jsonl", tiny.questions(80)[60:]))]
    losses = [
        evaluate(name, data, tmp_path / "e.json").stats["overall"]["loss"]["value"]
        for name in (chain / "work" / "lora", chain / "model")
    ]
    assert losses[0] < losses[1] - 0.1
    assert (chain / "work" / "lora" / "adapter").is_dir()
