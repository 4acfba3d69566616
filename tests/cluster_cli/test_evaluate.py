"""``evaluate`` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster_cli.evaluate import print_results
from cluster_cli.main import run
from tests import tiny


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate-cli")
    tiny.save(folder / "model")
    rows = [
        {"stem": f"Which is {i}?", "options": ["x", f"{i}"], "key": "AB"[i % 2], "kind": i % 2}
        for i in range(6)
    ]
    tiny.write_jsonl(folder / "choices.jsonl", rows)
    return folder


def test_names_of_columns_json_and_up_to_date(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "e.json"
    line = ["evaluate", str(place / "model"), "--data", str(place / "choices.jsonl"), "-o"]
    line += [str(output), "--field", "prompt=stem", "--field", "response=key", "--by", "kind"]
    line += ["--choices-column", "options", "--answer-column", "key", "--samples", "200"]
    assert run(line) == 0
    captured = capsys.readouterr()
    table = captured.out.splitlines()
    titles = "examples  loss per example", "loss per token", "accuracy", "accuracy normalised"
    assert all(title in table[0] for title in titles)
    assert [text.split()[0:2] for text in table[1:]] == [["all", "6"], ["kind", "0"], ["kind", "1"]]
    assert f"{output}: 6 of 6 rows, answer loss " in captured.err
    assert run([*line, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"{output} is up to date\n"
    found = json.loads(captured.out)
    assert "examples" not in found
    assert found["results"]["overall"]["accuracy"]["examples"] == 6
    assert found["params"]["by"] == ["kind"]


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    wide = {"value": 0.5, "low": 0.25, "high": 0.75, "examples": 1200}
    one = {"value": 1.0, "low": None, "high": None, "examples": 1}
    results = {
        "overall": {"loss": wide, "exact_match": wide},
        "by": {"qtype": {"a": {"loss": one, "exact_match": one}, "b": {"loss": wide}}},
    }
    print_results(results, {"gsm8k": {"acc,none": 0.25, "version": 3}})
    assert capsys.readouterr().out == (
        "         examples  loss per example         exact match\n"
        "all      1,200     0.5000 [0.2500, 0.7500]  0.500 [0.250, 0.750]\n"
        "qtype b  1,200     0.5000 [0.2500, 0.7500]  -\n"
        "qtype a  1         1.0000                   1.000\n"
        "gsm8k  acc,none 0.2500\n"
    )


def test_errors_are_one_line(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = str(place / "model"), str(place / "choices.jsonl")
    output = str(tmp_path / "e.json")
    assert run(["evaluate", model, "-o", output]) == 2
    assert capsys.readouterr().err == (
        "error: there is nothing to evaluate on; give --data or --tasks\n"
    )
    assert run(["evaluate", str(tmp_path / "none"), "--data", data, "-o", output]) == 1
    assert (
        capsys.readouterr().err == f"error: no model folder at '{tmp_path}/none'; check the path\n"
    )
    fields = ["--field", "prompt=stem", "--field", "response=key"]
    wrong = ["--choices-column", "options", "--answer-column", "kinds"]
    assert run(["evaluate", model, "--data", data, "-o", output, *fields, *wrong]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"error: {data}:1 (row 0): 'kinds' is 'None', which names none of the 2 choices; name the "
        "column of the right one (index from 0, letter or text) with --answer-column"
    )


def test_tasks_without_the_harness(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.metadata

    def none(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", none)
    line = ["evaluate", str(place / "model"), "--tasks", "gsm8k", "-o", str(tmp_path / "e.json")]
    assert run(line) == 2
    assert capsys.readouterr().err == (
        "error: --tasks needs the lm-evaluation-harness; pip install 'cluster-cli[eval]'\n"
    )
