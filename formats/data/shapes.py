"""From one row's object to a conversation: shapes are detected row by row, or forced.

Detection is shy on purpose. A row with ``text`` and ``code``, or a question beside a ``context``,
could be read in several ways; such a row is refused with the flags that say what is meant.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from formats.data.rows import kind_of
from formats.data.turns import decoded, read_turns, text_of
from formats.data.types import BadRow, Conversation, DataOptions

Row = dict[str, Any]
Messages = list[dict[str, Any]]

CHAT_FIELDS = ("messages", "conversations", "conversation")
# Fields that belong to the prompt without saying how: their presence makes a pair unguessable.
_CONTEXT = (
    "article",
    "body",
    "choices",
    "context",
    "contexts",
    "document",
    "options",
    "passage",
    "premise",
    "story",
)
# Fields that may stand beside ``text`` and never are what is to be learned.
_METADATA = {
    *("added", "author", "created", "created_at", "date", "dump", "file", "file_path", "hash"),
    *("id", "idx", "index", "lang", "language", "language_score", "license", "meta", "metadata"),
    *("name", "num_tokens", "path", "score", "source", "timestamp", "title", "token_count"),
    *("tokens", "url", "version", "__index_level_0__"),
}
_PROMPT_NAMES = ("prompt", "question", "query", "instruction", "problem", "input", "text", "source")
_RESPONSE_NAMES = (
    "response",
    "answer",
    "completion",
    "output",
    "chosen",
    "solution",
    "target",
    "code",
    "summary",
    "explanation",
    "label",
)


def read_shape(row: Row, options: DataOptions) -> Conversation:
    """The conversation one row holds.

    Raises:
        BadRow: the row has no known shape, or not the forced one, or nothing to learn.
    """
    forced = "fields" if options.fields else options.format
    shape = detect(row) if forced == "auto" else forced
    if shape is None:
        raise BadRow(f"no known shape (keys: {_keys(row)}); {_advice(row)}")
    messages = _read_fields(row, options) if shape == "fields" else _READERS[shape](row)
    if shape == "text":
        return Conversation(shape, messages, None)
    messages = _with_system(messages, row) if shape != "fields" else messages
    if not any(m["role"] == "assistant" and m.get("weight") != 0 for m in messages):
        raise BadRow("no assistant turn, so there is nothing to learn")
    return Conversation(shape, messages, _tools(row))


def detect(row: Row) -> str | None:
    """The shape a row's keys speak for, or None where they speak for none or for several."""
    filled = {key for key, value in row.items() if value is not None}
    return _shape_of(filled, row) or _shape_of(set(row), row)


def _shape_of(has: set[str], row: Row) -> str | None:
    if "messages" in has:
        return "messages"
    if "conversations" in has or "conversation" in has:
        return "sharegpt"
    if any(row.get(key) for key in _CONTEXT):
        return None
    if "instruction" in has and ("output" in has or "response" in has):
        return "alpaca"
    if "prompt" in has and ("completion" in has or "response" in has):
        return "prompt-completion"
    if "question" in has and ("answer" in has or "response" in has):
        return "qa"
    if "text" in has and has <= {"text"} | _METADATA:
        return "text"
    return None


def _read_messages(row: Row) -> Messages:
    return read_turns(_need(row, "messages"), "messages")


def _read_sharegpt(row: Row) -> Messages:
    key = _first_key(row, CHAT_FIELDS[1:])
    return read_turns(_need(row, key), key)


def _read_alpaca(row: Row) -> Messages:
    prompt = text_of(_need(row, "instruction"), "instruction")
    extra = row.get("input")
    if extra is not None and text_of(extra, "input").strip():
        prompt = f"{prompt}\n\n{text_of(extra, 'input')}"
    key = _response_key(row, "output")
    return [*_history(row), *_pair(prompt, _text(_need(row, key), key))]


def _history(row: Row) -> Messages:
    """Alpaca's ``history``: earlier [instruction, response] pairs, learned like any other turn."""
    history = row.get("history") or []
    history = decoded(history) if isinstance(history, str) else history
    if not isinstance(history, list):
        raise BadRow(f"'history' is {kind_of(history)}, not a list of pairs")
    messages: Messages = []
    for pair in history:
        if not isinstance(pair, list) or len(pair) != 2:
            raise BadRow("'history' must hold [instruction, response] pairs")
        messages += _pair(text_of(pair[0], "history"), text_of(pair[1], "history"))
    return messages


def _read_prompt_completion(row: Row) -> Messages:
    return _chat_pair(row, "prompt", _response_key(row, "completion"))


def _chat_pair(row: Row, prompt_key: str, response_key: str) -> Messages:
    """Text or lists of turns on either side; assistant turns of the prompt are context only."""
    prompt, response = _need(row, prompt_key), _need(row, response_key)
    before = (
        [_context_only(turn) for turn in read_turns(prompt, prompt_key)]
        if _is_chat(prompt)
        else [{"role": "user", "content": text_of(prompt, prompt_key)}]
    )
    if _is_chat(response):
        return before + read_turns(response, response_key)
    return [*before, {"role": "assistant", "content": _text(response, response_key)}]


def _read_qa(row: Row) -> Messages:
    question = _text(_need(row, "question"), "question")
    key = _response_key(row, "answer")
    return _pair(question, _text(_need(row, key), key))


def _read_text(row: Row) -> Messages:
    text = _text(_need(row, "text"), "text")
    if not text:
        raise BadRow("'text' is empty, so there is nothing to learn")
    return [{"role": "text", "content": text}]


def _read_fields(row: Row, options: DataOptions) -> Messages:
    """The fields the user named; numbers are taken as they are written, because they were asked for."""
    texts: dict[str, list[str]] = {}
    chats: dict[str, Messages] = {}
    for role, name in options.fields:
        value = _need(row, name)
        if role != "system" and _is_chat(value):
            chats[role] = read_turns(value, name)
        elif type(value) in (int, float):
            texts.setdefault(role, []).append(str(value))
        else:
            texts.setdefault(role, []).append(text_of(value, name))
    joined = {role: "\n\n".join(parts) for role, parts in texts.items()}
    messages = [_context_only(turn) for turn in chats.get("prompt", [])]
    if "prompt" in joined:
        messages.append({"role": "user", "content": joined["prompt"]})
    messages += chats.get("response", [])
    if "response" in joined:
        messages.append({"role": "assistant", "content": joined["response"]})
    if "system" in joined:
        messages.insert(0, {"role": "system", "content": joined["system"]})
    return messages


_READERS: dict[str, Callable[[Row], Messages]] = {
    "messages": _read_messages,
    "sharegpt": _read_sharegpt,
    "alpaca": _read_alpaca,
    "prompt-completion": _read_prompt_completion,
    "qa": _read_qa,
    "text": _read_text,
}


def _pair(prompt: str, response: str) -> Messages:
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]


def _text(value: object, key: str) -> str:
    """Text; a bare number is refused with the flag that accepts it, because it may be a label."""
    if type(value) in (int, float):
        raise BadRow(f"{key!r} is a number ({value}), not text; a class label? {_FIELDS_HINT}")
    return text_of(value, key)


_FIELDS_HINT = "name the fields with --field prompt=... --field response=..."


def _need(row: Row, key: str) -> object:
    value = row.get(key)
    if value is None:
        state = "is null" if key in row else "is missing"
        close = [] if key in row else difflib.get_close_matches(key, map(str, row), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise BadRow(f"{key!r} {state} (keys: {_keys(row)}{hint})")
    return value


def _first_key(row: Row, keys: tuple[str, ...]) -> str:
    return next((key for key in keys if row.get(key) is not None), keys[0])


def _response_key(row: Row, usual: str) -> str:
    """``usual``, or ``response`` where that stands instead; two that differ are a contradiction."""
    first, second = row.get(usual), row.get("response")
    if first is not None and second is not None and first != second:
        raise BadRow(f"both {usual!r} and 'response' are given and differ; {_FIELDS_HINT}")
    return "response" if first is None and second is not None else usual


def _is_chat(value: object) -> bool:
    """A list of turns, as opposed to text or any other list."""
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return False
    return "role" in value[0] or "from" in value[0]


def _context_only(turn: dict[str, Any]) -> dict[str, Any]:
    return {**turn, "weight": 0} if turn["role"] == "assistant" else turn


def _with_system(messages: Messages, row: Row) -> Messages:
    """A separate ``system`` (or ``system_prompt``) field becomes the first turn."""
    key = _first_key(row, ("system", "system_prompt"))
    if row.get(key) is None or row[key] == "":
        return messages
    text = text_of(row[key], key)
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": text}, *messages]
    if messages[0]["content"] != text:
        raise BadRow(f"{key!r} and the first turn give two different system prompts")
    return messages


def _tools(row: Row) -> list[Any] | None:
    tools = row.get("tools")
    tools = decoded(tools) if isinstance(tools, str) else tools
    if not tools:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise BadRow("'tools' must be a list of objects")
    return tools


def _keys(row: Row) -> str:
    names = [str(key) for key in row]
    shown = ", ".join(names[:12]) or "none"
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"


def _advice(row: Row) -> str:
    """The flags that would read this row, guessed from its names; the user decides."""
    lower = {str(key).lower(): str(key) for key in row}
    texts = [str(k) for k, v in row.items() if isinstance(v, str) and str(k).lower() != "id"]
    response = next((lower[name] for name in _RESPONSE_NAMES if name in lower), None)
    if response is None:
        response = texts[-1] if len(texts) > 1 else "NAME"
    prompt = next((lower[n] for n in _PROMPT_NAMES if lower.get(n, response) != response), None)
    if prompt is None:
        prompt = next((name for name in texts if name != response), "NAME")
    context = [lower[name] for name in _CONTEXT if name in lower and row[lower[name]]]
    names = [name for name in context if isinstance(row[name], str)] + [prompt]
    flags = [f"--field prompt={name}" for name in names] + [f"--field response={response}"]
    return "name its fields, such as " + " ".join(flags)
