# ruff: noqa: E501 - tables of cases, one a line
"""Every shape, in its usual spellings, to one conversation."""

from __future__ import annotations

from typing import Any

import pytest

from formats.data.rows import identify
from formats.data.shapes import detect, read_shape
from formats.data.types import BadRow, DataOptions
from formats.errors import SettingError

CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


def turns(row: dict[str, Any], **options: Any) -> list[tuple[str, str]]:
    messages = read_shape(row, DataOptions(**options)).messages
    return [(message["role"], message["content"]) for message in messages]


ASKED = [("user", "q"), ("assistant", "a")]
QA = {"question": "q", "answer": "a"}
CHAT_A = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]

SHAPES: dict[str, tuple[str, dict[str, Any], list[tuple[str, str]]]] = {
    "openai": ("messages", {"messages": CHAT_A}, ASKED),
    "openai, content in parts": (
        "messages",
        {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"text": "b"}]}]},
        [("assistant", "ab")],
    ),
    "openai, developer": (
        "messages",
        {"messages": [{"role": "developer", "content": "s"}, *CHAT_A]},
        [("system", "s"), *ASKED],
    ),
    "sharegpt": (
        "sharegpt",
        {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
        ASKED,
    ),
    "sharegpt, system apart": (
        "sharegpt",
        {"system": "s", "conversations": [{"from": "GPT", "value": "a"}]},
        [("system", "s"), ("assistant", "a")],
    ),
    "sharegpt, empty system": ("sharegpt", {"system": "", "conversations": CHAT_A}, ASKED),
    "sharegpt, same system twice": (
        "sharegpt",
        {"system": "s", "conversations": [{"from": "system", "value": "s"}, *CHAT_A]},
        [("system", "s"), *ASKED],
    ),
    "sharegpt, tools": (
        "sharegpt",
        {
            "conversations": [
                {"from": "function_call", "value": '{"name": "f", "arguments": {"x": 1}}'},
                {"from": "observation", "value": "r"},
                {"from": "gpt", "value": "a"},
            ]
        },
        [("assistant", ""), ("tool", "r"), ("assistant", "a")],
    ),
    "several user turns, and a trailing one": (
        "messages",
        {"messages": [*CHAT_A[:1], *CHAT_A, *CHAT_A[:1]]},
        [("user", "q"), *ASKED, ("user", "q")],
    ),
    "alpaca": ("alpaca", {"instruction": "q", "input": "", "output": "a"}, ASKED),
    "alpaca, input": (
        "alpaca",
        {"instruction": "q", "input": "i", "response": "a"},
        [("user", "q\n\ni"), ("assistant", "a")],
    ),
    "alpaca, null input, system": (
        "alpaca",
        {"instruction": "q", "input": None, "output": "a", "system": "s"},
        [("system", "s"), *ASKED],
    ),
    "alpaca, history": (
        "alpaca",
        {"instruction": "q", "output": "a", "history": [["q0", "a0"]]},
        [("user", "q0"), ("assistant", "a0"), *ASKED],
    ),
    "prompt": ("prompt-completion", {"prompt": "q", "completion": "a"}, ASKED),
    "prompt, response": ("prompt-completion", {"prompt": "q", "response": "a"}, ASKED),
    "prompt, lists": (
        "prompt-completion",
        {"prompt": CHAT_A, "completion": [{"role": "assistant", "content": "b"}]},
        [*ASKED, ("assistant", "b")],
    ),
    "question": ("qa", {**QA, "qtype": "x", "focus": "y", "context": ""}, ASKED),
    "question, system prompt": ("qa", {"question": "q", "response": "a", "system_prompt": "s"}, [("system", "s"), *ASKED]),
    "text": ("text", {"text": "t", "url": "u", "meta": {"x": 1}}, [("text", "t")]),
}  # fmt: skip


@pytest.mark.parametrize("case", SHAPES)
def test_shape(case: str) -> None:
    shape, row, expected = SHAPES[case]
    assert read_shape(row, DataOptions()).shape == shape
    assert turns(row) == expected
    assert turns(row, format=shape) == expected


@pytest.mark.parametrize(
    "row",
    [
        {"text": "t", "code": "c"},
        {"text": "t", "label": 1},
        {**QA, "context": "c"},
        {**QA, "choices": ["x"]},
        {"Question": "q", "Answer": "a"},
        {"prompt": "p", "chosen": "c", "rejected": "r"},
        {},
    ],
)
def test_what_nobody_can_guess_has_no_shape(row: dict[str, Any]) -> None:
    assert detect(row) is None


def test_tool_calls_and_results_are_kept() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": '{"x": 1}'}}],
        "name": None,
    }
    result = {"role": "tool", "content": "r", "tool_call_id": "1", "name": "f"}
    tools = [{"type": "function", "function": {"name": "f"}}]
    read = read_shape({"messages": [message, result], "tools": tools}, DataOptions())
    assert read.messages == [
        {"role": "assistant", "content": "", "tool_calls": [{**CALL, "id": "1"}]},
        result,
    ]
    assert read.tools == tools


def test_old_function_calls_and_tools_as_text() -> None:
    message = {"role": "assistant", "function_call": {"name": "f", "arguments": '{"x": 1}'}}
    row = {"messages": [message, {"role": "function", "content": "r"}], "tools": '[{"name": "f"}]'}
    read = read_shape(row, DataOptions())
    assert read.messages[0]["tool_calls"] == [CALL]
    assert read.messages[1]["role"] == "tool"
    assert read.tools == [{"name": "f"}]


def test_arguments_that_are_no_json_stay_text() -> None:
    message = {"role": "assistant", "function_call": {"name": "f", "arguments": "x = 1"}}
    read = read_shape({"messages": [message]}, DataOptions())
    assert read.messages[0]["tool_calls"][0]["function"]["arguments"] == "x = 1"


def test_turns_of_a_prompt_and_of_weight_0_are_context_only() -> None:
    row = {"prompt": CHAT_A, "completion": "b"}
    weights = [m.get("weight") for m in read_shape(row, DataOptions()).messages]
    assert weights == [None, 0, None]
    row = {"messages": [{**CHAT_A[1], "weight": 0}, {**CHAT_A[1], "weight": 1}]}
    assert [m.get("weight") for m in read_shape(row, DataOptions()).messages] == [0, None]
    row = {"messages": [{**CHAT_A[1], "weight": 0}]}
    with pytest.raises(BadRow, match="^no assistant turn, so there is nothing to learn$"):
        read_shape(row, DataOptions())
    row = {"messages": [{**CHAT_A[1], "weight": 0.5}]}
    with pytest.raises(BadRow, match="^turn 1: weight 0.5 of a turn must be 0 or 1$"):
        read_shape(row, DataOptions())


def test_fields() -> None:
    row = {"Body": "b", "Question": "q", "Answer": 51.0, "Rules": "s"}
    fields = (
        ("prompt", "Body"),
        ("prompt", "Question"),
        ("response", "Answer"),
        ("system", "Rules"),
    )
    assert turns(row, fields=fields) == [
        ("system", "s"),
        ("user", "b\n\nq"),
        ("assistant", "51.0"),
    ]
    chat = {"dialog": CHAT_A[:1], "reply": CHAT_A[1:]}
    assert turns(chat, fields=(("prompt", "dialog"), ("response", "reply"))) == ASKED


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"Q": "q"}, "'A' is missing (keys: Q)"),
        ({"Q": "q", "A": None}, "'A' is null (keys: Q, A)"),
        ({"Q": "q", "A": ["a"]}, "'A' is a list, not text"),
        ({"Q": "q", "A": False}, "'A' is true or false, not text"),
    ],
)
def test_fields_that_fail(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRow) as caught:
        turns(row, fields=(("prompt", "Q"), ("response", "A")))
    assert str(caught.value) == reason


def test_a_forced_format_says_what_is_missing() -> None:
    with pytest.raises(BadRow, match=r"^'instruction' is missing \(keys: question, answer\)$"):
        turns(QA, format="alpaca")
    assert turns({"text": "t", "label": 1}, format="text") == [("text", "t")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "alpca"}, "--format does not know 'alpca'; did you mean 'alpaca'? known: auto, messages, sharegpt, alpaca, prompt-completion, qa, text, fields"),
        ({"on_bad_row": "ignore"}, "--on-bad-row does not know 'ignore'; known: fail, skip"),
        ({"limit": 0}, "--limit 0 reads nothing; give a number of rows, 1 or more"),
        ({"format": "qa", "fields": (("prompt", "a"), ("response", "b"))}, "--field and --format qa contradict each other; drop one of them"),
        ({"fields": (("prompt", "a"),)}, "no --field names the response; add --field response=NAME"),
        ({"format": "fields"}, "no --field names the prompt and the response; add --field prompt=NAME --field response=NAME"),
        ({"fields": (("answer", "a"),)}, "--field does not know 'answer'; known: prompt, response, system"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        DataOptions(**options)
    assert str(caught.value) == message


def test_equal_content_has_an_equal_id_whatever_its_shape() -> None:
    rows = [
        QA,
        {"messages": CHAT_A},
        {"instruction": "q", "output": "a", "id": 7},
        {"conversations": [{"value": "q", "from": "human"}, {"value": "a", "from": "gpt"}]},
    ]
    ids = {identify(read_shape(row, DataOptions())) for row in rows}
    assert len(ids) == 1
    assert ids != {identify(read_shape({**QA, "answer": "b"}, DataOptions()))}


def test_the_id_is_blake2b_of_the_canonical_json() -> None:
    import hashlib

    text = '[[{"content":"q","role":"user"},{"content":"ä","role":"assistant"}],null]'
    expected = hashlib.blake2b(text.encode(), digest_size=16).digest()
    assert identify(read_shape({"question": "q", "answer": "ä"}, DataOptions())) == expected
