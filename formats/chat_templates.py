"""Conversations to text by a chat template, and where the assistant's turns stand in that text.

Rendering is left to the tokenizer's own sandbox. What it cannot say is which characters are to be
learned; :func:`assistant_spans` finds out by rendering more than once and comparing.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

Messages = list[dict[str, Any]]
Span = tuple[int, int]
_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")

# Used for tokenizers that come without a chat template: one block a turn, named by a line of its
# own, and the end-of-sequence token after every response. ``add_bos`` is true for tokenizers that
# start every text with a beginning-of-sequence token.
PLAIN_TEMPLATE = """\
{{- bos_token if add_bos else '' -}}
{%- if tools %}{{ 'Tools:\\n' + (tools | tojson) + '\\n\\n' }}{% endif -%}
{%- for message in messages -%}
{{- message.role | capitalize + ':\\n' + message.content -}}
{%- if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif -%}
{{- eos_token + '\\n\\n' if message.role == 'assistant' else '\\n\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ 'Assistant:\\n' }}{% endif -%}
"""

# Some templates print today's date. The same row must give the same tokens on any day, so the
# function they ask is shadowed by one that knows a single day.
_FIXED_DATE = """\
{%- macro strftime_now(format) -%}
{{- format | replace('%d', '01') | replace('%-d', '1') | replace('%m', '01') | replace('%Y', '2025')
    | replace('%y', '25') | replace('%b', 'Jan') | replace('%B', 'January') | replace('%A',
    'Wednesday') | replace('%a', 'Wed') | replace('%H', '00') | replace('%M', '00')
    | replace('%S', '00') -}}
{%- endmacro %}
"""


class TemplateRefusal(Exception):  # noqa: N818 - a verdict on one conversation, reported with its row
    """The template would not render these turns; the text is its own reason."""


class ChatTemplate:
    """One template of one tokenizer.

    Args:
        tokenizer: a Hugging Face tokenizer.
        source: the template's Jinja text.
        variables: what the template may read besides messages, tools and special tokens.
    """

    def __init__(self, tokenizer: Any, source: str, **variables: Any) -> None:
        self._tokenizer = tokenizer
        self._source = _FIXED_DATE + source if "strftime_now" in source else source
        self.lines_added = self._source.count("\n") - source.count("\n")
        self._variables = variables
        self.marks_generations = _GENERATION.search(source) is not None
        self.has_header = "add_generation_prompt" in source

    def text(self, messages: Messages, tools: list[Any] | None, *, header: bool = False) -> str:
        """The rendered conversation; with ``header``, up to where the assistant would begin.

        Raises:
            TemplateRefusal: the template does not accept these turns.
        """
        return self._apply(messages, tools, tokenize=False, add_generation_prompt=header)

    def marked_tokens(self, messages: Messages, tools: list[Any] | None) -> dict[str, list[int]]:
        """``input_ids`` and ``assistant_masks`` of a template that marks generations itself.

        Raises:
            TemplateRefusal: the template does not accept these turns.
        """
        return self._apply(
            messages,
            tools,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
            tokenizer_kwargs={"verbose": False},
        )

    def try_text(self, messages: Messages, tools: list[Any] | None, **how: bool) -> str | None:
        """As :meth:`text`, or None where the template does not accept so few turns."""
        try:
            return self.text(messages, tools, **how) if messages else None
        except TemplateRefusal:
            return None

    def _apply(self, messages: Messages, tools: list[Any] | None, **how: Any) -> Any:
        shown = [{k: v for k, v in message.items() if k != "weight"} for message in messages]
        try:
            return self._tokenizer.apply_chat_template(
                shown, tools=tools, chat_template=self._source, **how, **self._variables
            )
        except Exception as error:  # templates fail in any way that Python can
            raise TemplateRefusal(str(error) or type(error).__name__) from error


def is_learned(message: dict[str, Any]) -> bool:
    """Whether this turn's tokens are to be learned."""
    return message["role"] == "assistant" and message.get("weight") != 0


def assistant_spans(
    template: ChatTemplate,
    messages: Messages,
    tools: list[Any] | None,
    closers: Collection[str],
) -> tuple[str, list[Span]]:
    """The whole rendering, and the characters of it that are to be learned.

    A span begins where the assistant would begin to write and ends with the turn's closing token.
    Usually the rendering of the turns before is a prefix of the whole, which gives both ends.
    Templates that render a turn differently once others follow (thoughts are removed, the last
    turn is special) break that; there the turn is replaced by a probe, and what changes is the turn.

    Args:
        closers: the tokenizer's special tokens, among them the one that ends a turn.

    Raises:
        TemplateRefusal: the template does not accept these turns.
    """
    whole = template.text(messages, tools)
    spans: list[Span] = []
    for turn, message in enumerate(messages):
        if not is_learned(message):
            continue
        floor = spans[-1][1] if spans else 0
        finder = _Finder(template, messages, tools, turn, whole, floor)
        span = finder.by_prefix() or finder.by_probe()
        if span is not None:
            spans.append(_without_glue(whole, span, closers))
    return whole, spans


class _Finder:
    """Looks for one turn of a conversation in its rendering."""

    def __init__(
        self,
        template: ChatTemplate,
        messages: Messages,
        tools: list[Any] | None,
        turn: int,
        whole: str,
        floor: int,
    ) -> None:
        self._template, self._messages, self._tools = template, messages, tools
        self._turn, self._whole, self._floor = turn, whole, floor
        before, until = messages[:turn], messages[: turn + 1]
        self._opened = template.try_text(before, tools, header=True)
        last = len(until) == len(messages)
        self._closed = whole if last else template.try_text(until, tools)

    def by_prefix(self) -> Span | None:
        """Both ends from renderings of the turns before, if these are prefixes of the whole."""
        opened, closed = self._opened, self._closed
        if opened is None or closed is None or not self._template.has_header:
            return None
        if not (self._whole.startswith(opened) and self._whole.startswith(closed)):
            return None
        span = (len(opened), len(closed))
        return span if self._floor <= span[0] <= span[1] else None

    def by_probe(self) -> Span | None:
        """Both ends from what changes when the turn says something else."""
        found = self._changed(self._messages, self._whole)
        if found is None:
            return None
        start, end = found
        header = self._header()
        at = self._whole.rfind(header, self._floor, start) if header else -1
        return (at + len(header) if at >= 0 else start), end + self._tail(end)

    def _changed(self, messages: Messages, text: str) -> Span | None:
        """The part of ``text`` that comes from what the turn says."""
        mark = next(chr(code) for code in range(0xF000, 0xF8FF) if chr(code) not in text)
        probe = [*messages]
        probe[self._turn] = _say(messages[self._turn], mark)
        other = self._template.try_text(probe, self._tools)
        if other is None or other == text:
            return None
        start = _common(text, other)
        end = len(text) - _common(text[start:][::-1], other[start:][::-1])
        return start, end

    def _header(self) -> str:
        """What the template writes to open an assistant's turn."""
        before = self._template.try_text(self._messages[: self._turn], self._tools)
        if self._opened is None or before is None or not self._opened.startswith(before):
            return ""
        return self._opened[len(before) :]

    def _tail(self, end: int) -> int:
        """How many characters after the content still belong to the turn: tool calls, its close."""
        if self._closed is None:
            return 0
        found = self._changed(self._messages[: self._turn + 1], self._closed)
        return _common(self._whole[end:], self._closed[found[1] :]) if found else 0


def _say(message: dict[str, Any], text: str) -> dict[str, Any]:
    """The same turn, saying ``text``."""
    said = {**message, "content": text}
    if "reasoning_content" in message:
        said["reasoning_content"] = text
    if "tool_calls" in message:
        said["tool_calls"] = [
            {**call, "function": {**call["function"], "name": text}}
            for call in message["tool_calls"]
        ]
    return said


def _without_glue(whole: str, span: Span, closers: Collection[str]) -> Span:
    """White space after the closing token is the template's, and nobody needs to learn it."""
    start, end = span
    kept = whole[start:end].rstrip()
    return (start, start + len(kept)) if kept.endswith(tuple(closers)) else span


def _common(first: str, second: str) -> int:
    """Length of the common prefix, by halving: comparing slices is far faster than characters."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
