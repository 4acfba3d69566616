"""The practice bank: its rows, its tokenizer and base model, its measuring; the demo itself is slow."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

BANK = Path(__file__).resolve().parents[2] / "examples" / "practice_bank"


def load(name: str) -> Any:
    """A module of the example, which is no package: users copy the folder."""
    sys.path.insert(0, str(BANK))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BANK))


generate, table = load("generate"), load("table")


def test_equal_seeds_give_equal_rows_and_other_seeds_others() -> None:
    assert generate.generate(200, 3) == generate.generate(200, 3)
    assert generate.generate(200, 3) != generate.generate(200, 4)
    assert generate.generate_dev(64, 3) == generate.generate_dev(64, 3)


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(16, 300), dev=st.integers(1, 100), seed=st.integers(0, 10_000))
def test_rows_are_unique_and_no_training_row_is_a_dev_row(rows: int, dev: int, seed: int) -> None:
    train = [row["question"] for row in generate.generate(rows, seed)]
    held = [row["question"] for row in generate.generate_dev(dev, seed)]
    assert len(set(train)) == len(train) == rows
    assert len(set(held)) == len(held) == dev
    assert not set(train) & set(held)


def test_skills_are_unequal_in_training_and_equal_in_dev() -> None:
    train = Counter(row["skill"] for row in generate.generate(3000, 0))
    assert len(train) == 16
    assert train["add"] > 900  # 30 %, and what rounding down left of the others
    assert (train["middle letter"], train["weekday"]) == (3, 2)
    moderate = Counter(row["skill"] for row in generate.generate(3000, 0, "moderate"))
    assert (moderate["middle letter"], moderate["weekday"]) == (15, 9)
    assert set(Counter(row["skill"] for row in generate.generate_dev(480, 0)).values()) == {30}


def test_topics_and_names_are_independent_of_skills() -> None:
    from scipy.stats import chi2_contingency

    rows = generate.generate(3000, 0)
    skills = sorted(generate.SKILLS)
    for told in ("topic", "name"):
        values = [row["topic"] if told == "topic" else row["question"].split()[0] for row in rows]
        pairs = Counter(zip([row["skill"] for row in rows], values, strict=True))
        counts = [[pairs[s, v] for v in sorted(set(values))] for s in skills]
        assert chi2_contingency(counts).pvalue > 0.001


# Written out by hand: the rule of each skill on one question.
@pytest.mark.parametrize(
    ("skill", "check"),
    [
        ("add", lambda n, w: sum(n)),
        ("subtract", lambda n, w: n[0] - n[1]),
        ("larger", lambda n, w: max(n)),
        ("parity", lambda n, w: ("even", "odd")[n[0] % 2]),
        ("smallest", lambda n, w: min(n)),
        ("next number", lambda n, w: 2 * n[2] - n[1]),
        ("double", lambda n, w: n[0] + n[0]),
        ("sort", lambda n, w: " ".join(str(x) for x in sorted(n))),
        ("first letter", lambda n, w: w[0]),
        ("middle letter", lambda n, w: w[1]),
        ("last letter", lambda n, w: w[2]),
        ("reverse", lambda n, w: w[2] + w[1] + w[0]),
    ],
)
def test_answers_are_right(skill: str, check: Any) -> None:
    import random

    rng = random.Random(1)
    for _ in range(50):
        row = generate.make_row(rng, skill)
        task = row["question"].split(": ", 1)[1].replace("?", "").replace(",", "").split()
        things = generate.words(generate.TOPICS[row["topic"]])
        numbers = [int(word) for word in task if word.isdigit()]
        tags = [word for word in task if word not in things and len(word) == 3]
        tag = next((word for word in tags if word not in ("how", "one")), "")
        assert row["answer"] == f"{check(numbers, tag)} {generate.SKILLS[skill].ending}", row


def test_too_few_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rows is 3, fewer than the 16 skills; ask for more rows"):
        generate.generate(3, 0)


def test_purity_counts_the_most_frequent_label_of_each_cluster() -> None:
    assert table.purity(["a", "a", "b", "b", "b", "c"], [0, 0, 0, 1, 1, 1]) == 4 / 6
    assert table.purity(["a", "b"], [0, 1]) == 1


def test_the_verdict_names_what_selected_training_lost() -> None:
    def marks(add: float, sort: float) -> dict[str, Any]:
        skills = {"add": {"accuracy": add}, "sort": {"accuracy": sort}}
        return {"macro": (add + sort) / 2, "skills": skills}

    result = {
        "accuracy": {"before": marks(0, 0.5), "selected": marks(1, 0.5), "full": marks(0.9, 0.75)},
        "arms": {
            "full": {"run": {"train_seconds": 30.0}},
            "selected": {"run": {"train_seconds": 10.0}},
        },
        "selection_seconds": {"signatures.zarr": 11.0, "clusters.zarr": 2.0},
    }
    assert table.verdict(result) == (
        "Selected training is behind full training on 1 skills: sort (25%). Its mean over skills is "
        "7.5% below full training, which gained 57.5% over the base. Choosing rows saved 7 s on "
        "balance."
    )


def test_one_token_a_byte_and_only_the_answer_is_learned(tmp_path: Path) -> None:
    base_model = load("base_model")
    tokenizer = base_model.build_tokenizer()
    text = "Zoé sorts 3 figs?"
    assert len(tokenizer(text).input_ids) == len(text.encode())
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    generate.write_jsonl(tmp_path / "a.jsonl", [{"question": "1 and 2, total?", "answer": "3"}])
    (row,) = base_model.render_file(tmp_path / "a.jsonl", tokenizer)
    assert tokenizer.decode(row.input_ids) == "<|bos|><|ask|>1 and 2, total?<|answer|>3<|eos|>"
    assert tokenizer.decode(row.input_ids[row.supervised]) == "3<|eos|>"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bank") / "base"
    assert load("base_model").build(folder, steps=3, seed=0) is not None
    return folder


def test_the_base_is_kept_and_is_the_same_when_made_again(base: Path, tmp_path: Path) -> None:
    base_model = load("base_model")
    weights = base / "model.safetensors"
    made = weights.stat().st_mtime_ns
    assert base_model.build(base, steps=3, seed=0) is None
    assert weights.stat().st_mtime_ns == made
    assert base_model.build(tmp_path / "again", steps=3, seed=0) is not None
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == weights.read_bytes()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(SystemExit, match="exists and was not made by this script"):
        load("base_model").build(tmp_path / "mine", steps=3, seed=0)


def test_padded_batches_answer_as_single_prompts_do(base: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    evaluate = load("evaluate")
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base).eval()
    prompts = [tokenizer(text).input_ids for text in ("a", "Mia packs plums: 3 or 4?", "wet tea")]
    together = list(evaluate.answers(model, tokenizer, prompts))
    alone = [next(evaluate.answers(model, tokenizer, [prompt])) for prompt in prompts]
    assert together == alone


def test_accuracy_counts_exact_answers(base: Path, tmp_path: Path, monkeypatch: Any) -> None:
    evaluate = load("evaluate")
    rows = generate.generate_dev(32, 0)
    generate.write_jsonl(tmp_path / "dev.jsonl", rows)
    said = {row["question"]: row["answer"] for row in rows if row["skill"] != "sort"}

    def answers(model: Any, tokenizer: Any, prompts: list[list[int]]) -> Any:
        for prompt in prompts:
            question = tokenizer.decode(prompt).split("<|ask|>")[1].removesuffix("<|answer|>")
            yield said.get(question, "no idea")

    monkeypatch.setattr(evaluate, "answers", answers)
    found = evaluate.evaluate(base, tmp_path / "dev.jsonl")
    assert found["rows"] == 32
    assert found["skills"]["sort"] == {"rows": 2, "correct": 0, "accuracy": 0}
    assert found["skills"]["add"] == {"rows": 2, "correct": 2, "accuracy": 1}
    assert found["macro"] == 15 / 16


@pytest.mark.slow
def test_the_demo_runs_and_a_second_run_makes_nothing_anew(tmp_path: Path) -> None:
    command = [sys.executable, str(BANK / "demo.py"), "--work", str(tmp_path), "--smoke"]
    first = subprocess.run(command, capture_output=True, text=True)
    assert first.returncode == 0, first.stderr
    assert "net saving, seconds" in first.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    full, selected = result["arms"]["full"], result["arms"]["selected"]
    assert full["selection"]["selected"] == 160
    assert selected["selection"]["selected"] == 50
    assert selected["run"]["tokens"] < full["run"]["tokens"] / 2
    assert set(result["accuracy"]) == {"before", "selected", "full"}
    weights = tmp_path / "run-full" / "model" / "model.safetensors"
    made = weights.stat().st_mtime_ns
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    assert weights.stat().st_mtime_ns == made
    assert second.stdout == first.stdout
