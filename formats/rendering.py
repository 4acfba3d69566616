"""The one function that turns an example into tokens, for scoring and for training alike.

All assistant turns are supervised, each with the token that ends it; prompts, system turns and
tool results are not. After the last assistant turn everything is dropped. What is longer than the
maximum length loses its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from formats.chat_templates import (
    PLAIN_TEMPLATE,
    ChatTemplate,
    Span,
    TemplateRefusal,
    assistant_spans,
    is_learned,
)
from formats.data import Example
from formats.errors import DataError, ModelError, SettingError
from formats.fingerprints import digest

RENDERING_VERSION = 1  # raise when the same row would give other tokens or another mask

OK, TRUNCATED, EMPTY_RESPONSE, PROMPT_TOO_LONG, NONFINITE, DUPLICATE = range(6)
STATUS_NAMES = (
    "ok",
    "truncated",
    "empty_response",
    "prompt_too_long",
    "nonfinite",
    "duplicate",
)


@dataclass(frozen=True)
class Rendered:
    """One example as tokens.

    Attributes:
        input_ids: (T,) int32.
        supervised: (T,) bool; token t is a response token, so its prediction is learned. Never the
            first token, which nothing predicts.
        status: ``OK``, ``TRUNCATED``, ``EMPTY_RESPONSE`` or ``PROMPT_TOO_LONG``; the first two are
            usable.
        prompt_tokens: how many are not supervised.
        response_tokens: how many are.
    """

    input_ids: np.ndarray
    supervised: np.ndarray
    status: int
    prompt_tokens: int
    response_tokens: int


class Renderer:
    """Renders examples with one tokenizer, one chat template and one maximum length.

    A slow tokenizer gives no character offsets; there the text is cut at the ends of the turns and
    the pieces are tokenized one by one, which can differ from the whole in the tokens at a cut.

    Args:
        tokenizer: a Hugging Face tokenizer.
        max_length: tokens kept of an example.
        chat_template: Jinja text to use instead of the tokenizer's own. A tokenizer without one
            gets ``formats.chat_templates.PLAIN_TEMPLATE``.

    Raises:
        SettingError: ``max_length`` is below 2, or ``chat_template`` is not valid Jinja.
        ModelError: the tokenizer's own template is not valid, or it has no end-of-sequence token
            where one is needed.
    """

    def __init__(
        self, tokenizer: Any, *, max_length: int, chat_template: str | None = None
    ) -> None:
        if max_length < 2:
            raise SettingError(f"maximum length {max_length} is too short", fix="give 2 or more")
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._override = chat_template
        self._closers = _special_tokens(tokenizer)
        self._sources = {"chat": self._choose(None), "tools": self._choose([{}])}
        self._templates = {use: self._compiled(source) for use, source in self._sources.items()}

    def __call__(self, example: Example) -> Rendered:
        """Tokens and mask of one example.

        Raises:
            DataError: the chat template refuses the example's turns.
            ModelError: plain text, and the tokenizer has no end-of-sequence token.
        """
        if example.messages[0]["role"] == "text":
            return self._finish(*self._render_text(example.messages[0]["content"]), empty=False)
        last = max(i for i, message in enumerate(example.messages) if is_learned(message))
        messages = example.messages[: last + 1]
        try:
            ids, supervised = self._render_chat(messages, example.tools)
        except TemplateRefusal as refusal:
            raise _refused(example, messages, str(refusal)) from refusal
        return self._finish(ids, supervised, empty=_says_nothing(messages))

    def fingerprint(self) -> str:
        """SHA-256 (hex) over template, maximum length and rendering version; not the tokenizer."""
        return digest(
            {
                "chat_template": self._sources["chat"],
                "tool_template": self._sources["tools"],
                "max_length": self._max_length,
                "version": RENDERING_VERSION,
            }
        )

    def _choose(self, tools: list[Any] | None) -> str:
        if self._override is not None:
            return self._override
        if not self._tokenizer.chat_template:
            return PLAIN_TEMPLATE
        try:
            return self._tokenizer.get_chat_template(None, tools)
        except ValueError:
            names = ", ".join(sorted(self._tokenizer.chat_template))
            raise ModelError(
                f"the tokenizer has several chat templates ({names}) and no default",
                fix="give one with --chat-template FILE",
            ) from None

    def _compiled(self, source: str) -> ChatTemplate:
        """The template, tried once: that is when Jinja reads it. What it makes of a row is no matter."""
        from jinja2 import TemplateSyntaxError

        variables = {}
        if source is PLAIN_TEMPLATE:
            self._end_token()
            variables["add_bos"] = self._adds_bos()
        template = ChatTemplate(self._tokenizer, source, **variables)
        try:
            template.text([{"role": "user", "content": "a"}], None)
        except TemplateRefusal as refusal:
            if isinstance(refusal.__cause__, TemplateSyntaxError):
                line = refusal.__cause__.lineno - template.lines_added
                raise self._invalid(f"line {line}: {refusal.__cause__.message}") from None
        return template

    def _invalid(self, reason: str) -> SettingError | ModelError:
        if self._override is not None:
            return SettingError(
                f"the chat template is not valid Jinja, {reason}",
                fix="repair the file given with --chat-template",
            )
        return ModelError(
            f"the tokenizer's chat template is not valid Jinja, {reason}",
            fix="give another with --chat-template FILE",
        )

    def _render_chat(
        self, messages: list[dict[str, Any]], tools: list[Any] | None
    ) -> tuple[list[int], np.ndarray]:
        template = self._templates["tools" if tools else "chat"]
        context_only = any(message.get("weight") == 0 for message in messages)
        if template.marks_generations and self._tokenizer.is_fast and not context_only:
            marked = template.marked_tokens(messages, tools)
            if any(marked["assistant_masks"]):
                return self._with_closing_tokens(marked)
        text, spans = assistant_spans(template, messages, tools, self._closers)
        text = text[: spans[-1][1]] if spans else text
        if self._tokenizer.is_fast:
            return self._tokenize(text, spans)
        return self._tokenize_pieces(text, spans)

    def _with_closing_tokens(self, marked: dict[str, list[int]]) -> tuple[list[int], np.ndarray]:
        """Templates often leave the closing token outside their mark; it is learned all the same.

        Nothing but its closing follows the last assistant turn, which tells which token closes.
        """
        ids = list(marked["input_ids"])
        supervised = np.asarray(marked["assistant_masks"], bool)
        after = int(np.flatnonzero(supervised)[-1]) + 1
        closing = ids[after] if after < len(ids) else None
        if closing is not None and self._tokenizer.decode([closing]) in self._closers:
            ends = np.flatnonzero(supervised[:-1] & ~supervised[1:]) + 1
            supervised[[end for end in ends if ids[end] == closing]] = True
        kept = int(np.flatnonzero(supervised)[-1]) + 1
        return ids[:kept], supervised[:kept]

    def _tokenize(self, text: str, spans: list[Span]) -> tuple[list[int], np.ndarray]:
        """Tokens of the whole text; one is supervised if any of its characters is in a span."""
        encoded = self._tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        offsets = np.asarray(encoded["offset_mapping"], np.int64).reshape(-1, 2)
        # Some tokenizers leave leading spaces out of a token's offsets: count them in, from the
        # end of the token before. Tokens that share one character keep what they say.
        ends = offsets[:, 1]
        starts = np.concatenate([[0], ends[:-1]])
        starts = np.where(starts < ends, starts, offsets[:, 0])
        supervised = np.zeros(len(ends), bool)
        for start, end in spans:
            supervised |= (starts < end) & (ends > start)
        return encoded["input_ids"], supervised

    def _tokenize_pieces(self, text: str, spans: list[Span]) -> tuple[list[int], np.ndarray]:
        ids: list[int] = []
        mask: list[bool] = []
        at = 0
        for start, end in [*spans, (len(text), len(text))]:
            for piece, learned in ((text[at:start], False), (text[start:end], True)):
                tokens = self._tokenizer.encode(piece, add_special_tokens=False) if piece else []
                ids += tokens
                mask += [learned] * len(tokens)
            at = end
        return ids, np.asarray(mask, bool)

    def _render_text(self, text: str) -> tuple[list[int], np.ndarray]:
        end = self._end_token()
        ids = list(self._tokenizer(text, verbose=False)["input_ids"])
        bos = self._tokenizer.bos_token_id
        if bos is not None and ids[:2] == [bos, bos]:
            del ids[0]  # the text brought its own
        if not ids or ids[-1] != end:
            ids.append(end)
        return ids, np.ones(len(ids), bool)

    def _finish(self, ids: list[int], supervised: np.ndarray, *, empty: bool) -> Rendered:
        input_ids = np.asarray(ids[: self._max_length], np.int32)
        kept = supervised[: self._max_length].copy()
        kept[:1] = False
        response = int(kept.sum())
        if empty or not supervised[1:].any():
            status = EMPTY_RESPONSE
        elif response == 0:
            status = PROMPT_TOO_LONG
        else:
            status = TRUNCATED if len(ids) > self._max_length else OK
        return Rendered(input_ids, kept, status, len(input_ids) - response, response)

    def _end_token(self) -> int:
        if self._tokenizer.eos_token_id is None:
            raise ModelError(
                "the tokenizer has no end-of-sequence token to end a response with",
                fix="set eos_token in its tokenizer_config.json",
            )
        return self._tokenizer.eos_token_id

    def _adds_bos(self) -> bool:
        bos = self._tokenizer.bos_token_id
        return bos is not None and self._tokenizer("a")["input_ids"][:1] == [bos]


def _special_tokens(tokenizer: Any) -> tuple[str, ...]:
    added = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    return tuple(sorted({token for token in (*tokenizer.all_special_tokens, *added) if token}))


def _says_nothing(messages: list[dict[str, Any]]) -> bool:
    return not any(
        message["content"].strip() or message.get("tool_calls") or message.get("reasoning_content")
        for message in messages
        if is_learned(message)
    )


def _refused(example: Example, messages: list[dict[str, Any]], reason: str) -> DataError:
    order = [message["role"] for message in messages]
    shown = ", ".join(order[:12]) + (f" and {len(order) - 12} more" if len(order) > 12 else "")
    return DataError(
        f"{example.file}:{example.line} (row {example.row}): the model's chat template refuses the "
        f"turns {shown}: {' '.join(reason.split())}",
        fix="merge or reorder this row's turns, leave the row out, or give a template that accepts "
        "them with --chat-template FILE",
        row=example.row,
        file=example.file,
        line=example.line,
    )
