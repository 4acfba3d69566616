"""Rows to items: choices, right answers, prompts, tests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.data import Example
from formats.errors import DataError, SettingError
from stages.batching import batches
from stages.evaluate.items import (
    ANSWER,
    CHOICE,
    LOSS,
    Reader,
    portions,
)
from stages.evaluate.rows import read_choices, read_tests, reference
from stages.evaluate.settings import EvaluateSettings
from tests import tiny


def example(says: str = "0", /, **columns: Any) -> Example:
    messages = [
        {"role": "user", "content": "Which?"},
        {"role": "assistant", "content": says},
    ]
    return Example(3, b"i" * 16, messages, None, columns, "d.jsonl", 4)


def settings(**values: Any) -> EvaluateSettings:
    return EvaluateSettings(**{"max_length": 256, **values})


def text_of(tokenizer: Any, item: Any) -> str:
    return str(tokenizer.decode(item.input_ids[item.counted]))


@pytest.mark.parametrize(
    ("said", "right"), [(1, 1), (1.0, 1), ("B", 1), (" b ", 1), ("no", 1), ("yes", 0)]
)
def test_the_right_choice_is_an_index_a_letter_or_a_text(said: Any, right: int) -> None:
    found = read_choices(example(choices=["yes", "no"], answer=said), settings())
    assert found is not None
    assert found.right == right


@pytest.mark.parametrize("said", [2, -1, 0.5, True, "C", "Yes", None, [0]])
def test_a_right_choice_that_is_none_is_refused(said: Any) -> None:
    with pytest.raises(DataError) as error:
        read_choices(example(choices=["yes", "no"], answer=said), settings())
    assert str(error.value) == (
        f"d.jsonl:4 (row 3): 'answer' is {str(said)!r}, which names none of the 2 choices; name the "
        "column of the right one (index from 0, letter or text) with --answer-column"
    )


@pytest.mark.parametrize("texts", ["yes", ["yes"], ["yes", 1], ["yes", " "]])
def test_choices_that_are_none_are_refused(texts: Any) -> None:
    with pytest.raises(DataError) as error:
        read_choices(example(options=texts, answer=0), settings(choices="options"))
    assert str(error.value) == (
        "d.jsonl:4 (row 3): 'options' is no list of two or more texts; name the column with "
        "--choices-column"
    )


def test_every_choice_becomes_an_answer_without_the_token_that_ends_it() -> None:
    tokenizer = tiny.tokenizer()
    status, items = Reader(tokenizer, settings()).read(example(choices=["yes", "no"], answer=1))
    assert status == 0
    assert [item.kind for item in items] == [LOSS, CHOICE, CHOICE]
    assert text_of(tokenizer, items[0]) == "0</s>"
    # An answer that was read from the column of the right choice becomes its text.
    named = example("1", choices=["yes", "no"], answer=1)
    items = Reader(tokenizer, settings()).read(named)[1]
    assert [text_of(tokenizer, item) for item in items] == ["no</s>", "yes", "no"]
    assert reference(named, settings()) == "no"


def test_a_prompt_ends_where_the_answer_begins() -> None:
    tokenizer = tiny.tokenizer()
    reader = Reader(tokenizer, settings(generate=True))
    item = reader.read(example("Both"))[1][-1]
    assert item.kind == ANSWER
    assert tokenizer.decode(item.input_ids).endswith("User:\nWhich?\n\nAssistant:\n")
    assert reader.stops == {tokenizer.eos_token_id}


def test_tests_can_be_shown_and_must_be_there() -> None:
    tokenizer = tiny.tokenizer()
    shown = settings(run_code=True, show_tests=True)
    item = Reader(tokenizer, shown).read(example(test_list=["assert f(1)", "assert f(2)"]))[1][-1]
    assert "pass these tests:\n\nassert f(1)\nassert f(2)\n" in tokenizer.decode(item.input_ids)
    with pytest.raises(SettingError) as error:
        read_tests(example(code="x"), shown)
    assert str(error.value) == (
        "d.jsonl:4 has no tests in column 'test_list'; name it with --tests-column (the row has "
        "code), or drop --run-code"
    )


def test_what_is_too_long_is_left_out_whole_and_counted() -> None:
    reader = Reader(tiny.tokenizer(), settings(max_length=40, generate=True))
    row = example("1", choices=["yes", "no" * 40], answer=0)
    kinds = [item.kind for item in reader.read(row)[1]]
    assert kinds == [LOSS, ANSWER]
    assert reader.too_long == {CHOICE: 1}


def test_plain_text_has_no_question() -> None:
    plain = Example(0, b"i" * 16, [{"role": "text", "content": "abc"}], None, {}, "d.jsonl", 1)
    assert [i.kind for i in Reader(tiny.tokenizer(), settings()).read(plain)[1]] == [LOSS]
    with pytest.raises(SettingError, match="d.jsonl:1 is plain text, there is no question to"):
        Reader(tiny.tokenizer(), settings(generate=True)).read(plain)


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 120), st.integers(1, 5))
def test_batches_and_parts_hold_every_item_once(lengths: list[int], budget: int, most: int) -> None:
    formed = list(batches(lengths, budget))
    assert sorted(i for batch in formed for i in batch) == list(range(len(lengths)))
    for batch in formed:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget
    parts = portions(formed, most)
    assert len(parts) <= most
    assert [batch for part in parts for batch in part] == formed
