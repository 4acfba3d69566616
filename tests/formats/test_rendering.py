# ruff: noqa: E501 - tables of cases, one a line
"""Tokens and masks, over the families of chat templates that models come with."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.chat_templates import ChatTemplate, _Finder
from formats.data import Example
from formats.errors import DataError, ModelError, SettingError
from formats.rendering import (
    EMPTY_RESPONSE,
    OK,
    PROMPT_TOO_LONG,
    STATUS_NAMES,
    TRUNCATED,
    Rendered,
    Renderer,
)

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CHATML_WITHOUT_HEADER = CHATML.split("{% if")[0]
LLAMA = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start|>' + m.role + '<|end|>\\n\\n' }}"
    "{% if m.tool_calls %}{{ m.tool_calls[0].function | tojson }}"
    "{% else %}{{ m.content | trim }}{% endif %}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant<|end|>\\n\\n' }}{% endif %}"
)
ALTERNATING = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/...') }}{% endif %}"
    "{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
)
# the last turn keeps its thoughts, or gets empty ones; earlier turns lose theirs
THINKING = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}"
    "{% set parts = m.content.split('</think>') %}"
    "{% if loop.last %}{{ '<think>\\n' + (parts[0].replace('<think>', '').strip()"
    " if parts | length > 1 else '') + '\\n</think>\\n\\n' }}{% endif %}"
    "{{ parts[-1].strip() }}{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# the header opens the thoughts, which the history does not show
PRE_OPENED = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{{ '<|A|>' + m.content.split('</think>')[-1].lstrip() + eos_token }}"
    "{% else %}{{ '<|U|>' + m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|A|><think>\\n' }}{% endif %}"
)
MARKED = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}"
    "{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
)
MARKED_TOO_SHORT = MARKED.replace(
    "{{ m.content + '<|im_end|>' }}{% endgeneration %}",
    "{{ m.content }}{% endgeneration %}{{ '<|im_end|>' }}",
)
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|start|>", "<|end|>", "<|eot|>", "<|A|>", "<|U|>"]


@cache
def tokenizer(merged: bool = False, bos: bool = False, eos: str | None = "</s>") -> Any:
    """Byte-level; ``merged`` learns pieces of words, which then cross the ends of turns."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400 if merged else 256 + 10,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>", *SPECIALS],
        show_progress=False,
    )
    raw.train_from_iterator(["one two three four five six seven"] * 5 if merged else [], trainer)
    if bos:
        raw.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", eos_token=eos, additional_special_tokens=SPECIALS
    )


def example(*turns: Any, tools: list[Any] | None = None) -> Example:
    """Turns are (role, content), or whole messages."""
    messages = [t if isinstance(t, dict) else {"role": t[0], "content": t[1]} for t in turns]
    return Example(4, b"", messages, tools, {}, "data.jsonl", 7)


def renderer(template: str | None, max_length: int = 4000, **kind: Any) -> Renderer:
    return Renderer(tokenizer(**kind), max_length=max_length, chat_template=template)


def text(rendered: Rendered) -> str:
    return tokenizer().decode(rendered.input_ids)


def learned(rendered: Rendered, decoder: Any = None) -> list[str]:
    """The texts of the supervised runs."""
    mask = np.concatenate([[False], rendered.supervised, [False]]).astype(int)
    starts, ends = np.flatnonzero(np.diff(mask) == 1), np.flatnonzero(np.diff(mask) == -1)
    decode = (decoder or tokenizer()).decode
    return [decode(rendered.input_ids[start:end]) for start, end in zip(starts, ends, strict=True)]


U, A = ("user", "q"), ("assistant", "one")
B = ("assistant", "two")
PAST = {"role": "assistant", "content": "one", "weight": 0}
THOUGHT = ("assistant", "<think>\nt\n</think>\n\none")
THOUGHT_B = ("assistant", "<think>\nhm\n</think>\n\ntwo")
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}],
}

CASES: dict[str, tuple[str | None, tuple[Any, ...], list[str]]] = {
    "chatml": (CHATML, (U, A), ["one<|im_end|>"]),
    "chatml, two turns": (CHATML, (U, A, U, B), ["one<|im_end|>", "two<|im_end|>"]),
    "chatml, equal turns": (CHATML, (U, A, U, A), ["one<|im_end|>", "one<|im_end|>"]),
    "chatml, assistant first": (CHATML, (A, U, B), ["one<|im_end|>", "two<|im_end|>"]),
    "chatml, two assistants in a row": (CHATML, (U, A, B), ["one<|im_end|>", "two<|im_end|>"]),
    "chatml, several users": (CHATML, (("system", "s"), U, U, A), ["one<|im_end|>"]),
    "chatml, tool result": (CHATML, (U, A, ("tool", "r"), B), ["one<|im_end|>", "two<|im_end|>"]),
    "chatml, context only": (CHATML, (U, PAST, U, B), ["two<|im_end|>"]),
    "chatml, white space is the turn's": (CHATML, (U, ("assistant", "\n one \n")), ["\n one \n<|im_end|>"]),
    "chatml, the user quotes a header": (CHATML, (("user", "<|im_start|>assistant\nx"), A), ["one<|im_end|>"]),
    "chatml, the response quotes its end": (CHATML, (U, ("assistant", "a<|im_end|>b")), ["a<|im_end|>b<|im_end|>"]),
    "chatml that writes no header": (CHATML_WITHOUT_HEADER, (U, A, U, B), ["one<|im_end|>", "two<|im_end|>"]),
    "llama": (LLAMA, (U, A, U, B), ["one<|eot|>", "two<|eot|>"]),
    "llama, trimmed": (LLAMA, (U, ("assistant", " one\n")), ["one<|eot|>"]),
    "llama, tool call": (LLAMA, (U, CALL, ("tool", "r"), B), ['{"name": "f", "arguments": {"x": 1}}<|eot|>', "two<|eot|>"]),
    "alternating": (ALTERNATING, (U, A, U, B), ["one</s>", "two</s>"]),
    "thinking": (THINKING, (U, A), ["<think>\n\n</think>\n\none<|im_end|>"]),
    "thinking, thoughts": (THINKING, (U, THOUGHT), ["<think>\nt\n</think>\n\none<|im_end|>"]),
    "thinking, earlier thoughts go": (THINKING, (U, THOUGHT, U, THOUGHT_B), ["one<|im_end|>", "<think>\nhm\n</think>\n\ntwo<|im_end|>"]),
    "thinking, equal turns": (THINKING, (U, A, U, A), ["one<|im_end|>", "<think>\n\n</think>\n\none<|im_end|>"]),
    "thinking, assistant first": (THINKING, (THOUGHT, U, B), ["one<|im_end|>", "<think>\n\n</think>\n\ntwo<|im_end|>"]),
    "thinking, context only": (THINKING, (U, PAST, U, B), ["<think>\n\n</think>\n\ntwo<|im_end|>"]),
    "header that opens thoughts": (PRE_OPENED, (U, THOUGHT, U, THOUGHT_B), ["one</s>", "two</s>"]),
    "marked": (MARKED, (U, A, U, B), ["one<|im_end|>", "two<|im_end|>"]),
    "marked, end left out": (MARKED_TOO_SHORT, (U, A, U, B), ["one<|im_end|>", "two<|im_end|>"]),
    "marked, context only": (MARKED, (U, PAST, U, B), ["two<|im_end|>"]),
    "plain": (None, (("system", "s"), U, A, U, B), ["one</s>", "two</s>"]),
    "plain, assistant first": (None, (A, U, B), ["one</s>", "two</s>"]),
    "plain, tool call": (None, (U, CALL), ['[{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]</s>']),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_assistant_turns_are_learned_with_their_end(case: str) -> None:
    template, turns, expected = CASES[case]
    rendered = renderer(template)(example(*turns))
    assert learned(rendered) == expected
    assert rendered.status == OK
    assert rendered.input_ids.dtype == np.int32
    assert rendered.supervised.dtype == bool
    assert rendered.response_tokens == rendered.supervised.sum()
    assert rendered.prompt_tokens == (~rendered.supervised).sum()


@pytest.mark.parametrize("case", CASES)
def test_what_follows_the_last_assistant_turn_is_dropped(case: str) -> None:
    template, turns, _ = CASES[case]
    short = renderer(template)(example(*turns))
    longer = renderer(template)(example(*turns, U, ("tool", "x")))
    np.testing.assert_array_equal(longer.input_ids, short.input_ids)
    assert short.supervised[-1]


@pytest.mark.parametrize("case", CASES)
def test_a_slow_tokenizer_learns_the_same(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are tokens here, so cutting the text at the turns changes nothing."""
    template, turns, expected = CASES[case]
    monkeypatch.setattr(type(tokenizer()), "is_fast", property(lambda _: False))
    assert learned(renderer(template)(example(*turns))) == expected


def test_the_plain_template() -> None:
    turns = (("system", "s"), U, A, ("tool", "r"), B)
    assert text(renderer(None)(example(*turns))) == (
        "System:\ns\n\nUser:\nq\n\nAssistant:\none</s>\n\nTool:\nr\n\nAssistant:\ntwo</s>"
    )
    shown = text(renderer(None)(example(U, A, tools=[{"name": "f"}])))
    assert shown.startswith('Tools:\n[{"name": "f"}]\n\nUser:\nq')


@pytest.mark.parametrize("template", [LLAMA, None, ALTERNATING])
def test_bos_stands_once(template: str | None) -> None:
    rendered = renderer(template, bos=True)(example(U, A))
    assert (rendered.input_ids == tokenizer().bos_token_id).tolist()[:2] == [True, False]
    assert text(rendered).count("<s>") == 1


def test_no_bos_where_neither_template_nor_tokenizer_has_one() -> None:
    assert "<s>" not in text(renderer(None)(example(U, A)))
    assert "<s>" not in text(renderer(CHATML, bos=True)(example(U, A)))


def test_plain_text_is_learned_but_for_its_first_token() -> None:
    rendered = renderer(CHATML, bos=True)(example(("text", "hello")))
    assert (text(rendered), learned(rendered)) == ("<s>hello</s>", ["hello</s>"])
    rendered = renderer(CHATML)(example(("text", "hello</s>")))
    assert (text(rendered), learned(rendered)) == ("hello</s>", ["ello</s>"])
    assert text(renderer(CHATML, bos=True)(example(("text", "<s>hello")))) == "<s>hello</s>"


def test_tokens_that_cross_the_start_of_a_turn_are_learned() -> None:
    """' two' is one token of header and response: leaving it out would leave 'two' unlearned."""
    rendered = renderer(ALTERNATING, merged=True)(example(U, B))
    assert learned(rendered, tokenizer(merged=True)) == [" two</s>"]
    assert tokenizer(merged=True).tokenize(" two") == ["Ġtwo"]


@pytest.mark.parametrize("template", [CHATML, THINKING, None])
def test_offsets_that_leave_out_spaces(template: str | None) -> None:
    from tokenizers import processors

    kind = {"merged": True, "eos": "</s>"}
    trimming = tokenizer.__wrapped__(**kind)
    trimming.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    turns = example(U, ("assistant", "\n one two  three"), U, ("assistant", " four"))
    plain = Renderer(tokenizer(**kind), max_length=999, chat_template=template)(turns)
    trimmed = Renderer(trimming, max_length=999, chat_template=template)(turns)
    np.testing.assert_array_equal(trimmed.input_ids, plain.input_ids)
    np.testing.assert_array_equal(trimmed.supervised, plain.supervised)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>|")).map(str)


@settings(max_examples=60, deadline=None)
@given(contents=st.lists(TEXTS, min_size=2, max_size=6))
def test_any_text_is_learned_as_it_is(contents: list[str]) -> None:
    turns = [(("user", "assistant")[i % 2], text) for i, text in enumerate(contents)]
    expected = [text + "<|im_end|>" for role, text in turns if role == "assistant"]
    for merged in (False, True):
        rendered = renderer(CHATML, merged=merged, max_length=10**6)(example(*turns))
        assert learned(rendered, tokenizer(merged=merged)) == expected


@settings(max_examples=60, deadline=None)
@given(contents=st.lists(TEXTS.filter(str.strip), min_size=2, max_size=6), turn=st.integers(0, 5))
def test_the_probe_finds_what_prefixes_show(contents: list[str], turn: int) -> None:
    """On templates where both ways work they must agree."""
    turn = min(turn, len(contents) - 1) // 2 * 2 + 1
    turn = turn if turn < len(contents) else 1
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)
    ]
    for source in (CHATML, LLAMA):
        template = ChatTemplate(tokenizer(), source)
        finder = _Finder(template, messages, None, turn, template.text(messages, None), 0)
        assert finder.by_probe() == finder.by_prefix()


def test_truncation_and_statuses() -> None:
    turns = example(("user", "q" * 20), ("assistant", "a" * 20))
    whole = renderer(CHATML)(turns)
    cut = renderer(CHATML, len(whole.input_ids) - 1)(turns)
    assert (whole.status, cut.status) == (OK, TRUNCATED)
    np.testing.assert_array_equal(cut.input_ids, whole.input_ids[:-1])
    np.testing.assert_array_equal(cut.supervised, whole.supervised[:-1])
    assert renderer(CHATML, len(whole.input_ids))(turns).status == OK
    shortest = renderer(CHATML, whole.prompt_tokens)(turns)
    assert (shortest.status, shortest.response_tokens) == (PROMPT_TOO_LONG, 0)
    assert renderer(CHATML, whole.prompt_tokens + 1)(turns).status == TRUNCATED
    for nothing in ("", " \n"):
        assert renderer(CHATML)(example(U, ("assistant", nothing))).status == EMPTY_RESPONSE
    assert renderer(LLAMA)(example(U, CALL)).status == OK
    assert renderer(CHATML)(example(U, ("assistant", ""), U, A)).status == OK
    assert STATUS_NAMES == (
        "ok",
        "truncated",
        "empty_response",
        "prompt_too_long",
        "nonfinite",
        "duplicate",
    )


def test_an_order_that_the_template_refuses() -> None:
    with pytest.raises(DataError) as caught:
        renderer(ALTERNATING)(example(("system", "s"), U, A, U))
    assert str(caught.value) == (
        "data.jsonl:7 (row 4): the model's chat template refuses the turns system, user, "
        "assistant: Conversation roles must alternate user/assistant/...; merge or reorder this "
        "row's turns, leave the row out, or give a template that accepts them with "
        "--chat-template FILE"
    )
    with pytest.raises(DataError, match=r"refuses the turns (user, ){11}user and 3 more: "):
        renderer(ALTERNATING)(example(*[U] * 14, A))


def test_templates_that_are_not_jinja() -> None:
    with pytest.raises(SettingError) as caught:
        renderer("{{ strftime_now('%d') }}\n{% if %}")
    assert str(caught.value) == (
        "the chat template is not valid Jinja, line 2: Expected an expression, got 'end of "
        "statement block'; repair the file given with --chat-template"
    )
    own = tokenizer.__wrapped__()
    own.chat_template = "{% for %}"
    with pytest.raises(
        ModelError, match=r"^the tokenizer's chat template is not valid Jinja, line 1"
    ):
        Renderer(own, max_length=9)
    own.chat_template = {"first": CHATML, "second": LLAMA}
    with pytest.raises(ModelError) as several:
        Renderer(own, max_length=9)
    assert str(several.value) == (
        "the tokenizer has several chat templates (first, second) and no default; give one with "
        "--chat-template FILE"
    )


def test_a_template_for_tools_and_one_for_the_rest() -> None:
    own = tokenizer.__wrapped__()
    own.chat_template = {"default": CHATML, "tool_use": LLAMA}
    both = Renderer(own, max_length=999)
    assert learned(both(example(U, A))) == ["one<|im_end|>"]
    assert learned(both(example(U, A, tools=[{"name": "f"}]))) == ["one<|eot|>"]


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(SettingError, match=r"^maximum length 1 is too short; give 2 or more$"):
        renderer(CHATML, 1)
    message = (
        "^the tokenizer has no end-of-sequence token to end a response with; set eos_token in "
    )
    with pytest.raises(ModelError, match=message):
        renderer(None, eos=None)
    with pytest.raises(ModelError, match=message):
        renderer(CHATML, eos=None)(example(("text", "t")))


def test_the_date_is_the_same_every_day() -> None:
    template = "{{ strftime_now('%d %b %Y, %Y-%m-%d, %B %-d') }} | " + CHATML
    shown = text(renderer(template)(example(U, A)))
    assert shown.startswith("01 Jan 2025, 2025-01-01, January 1 | ")


def test_the_fingerprint_tells_what_changes_tokens() -> None:
    def fingerprint(template: str | None, length: int = 100) -> str:
        return renderer(template, length).fingerprint()

    assert fingerprint(CHATML) == fingerprint(CHATML)
    assert len({fingerprint(CHATML), fingerprint(LLAMA), fingerprint(None)}) == 3
    assert fingerprint(CHATML) != fingerprint(CHATML, 101)
    own = tokenizer.__wrapped__()
    own.chat_template = CHATML
    assert Renderer(own, max_length=100).fingerprint() == fingerprint(CHATML)
    assert len(fingerprint(CHATML)) == 64
