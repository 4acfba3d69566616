"""One turn of a conversation, in any of the spellings found in the wild, to one spelling."""

from __future__ import annotations

import json
from typing import Any

from formats.data.rows import kind_of
from formats.data.types import BadRow

_ROLES = {
    "system": ("system", "developer"),
    "user": ("user", "human", "prompter"),
    "assistant": ("assistant", "gpt", "bot", "model", "ai", "chatgpt", "bing", "bard"),
    "tool": (
        "tool",
        "function",
        "observation",
        "tool_response",
        "function_response",
        "tool_result",
        "ipython",
    ),
    "call": ("function_call", "tool_call"),
}
ROLE_OF = {spelling: role for role, spellings in _ROLES.items() for spelling in spellings}
_KEPT = ("name", "tool_call_id", "reasoning_content")


def read_turns(turns: object, field: str) -> list[dict[str, Any]]:
    """All turns of a list, each as :func:`read_turn` gives it.

    Raises:
        BadRow: not a list, empty, or a turn that cannot be read; the reason names the turn.
    """
    if isinstance(turns, str):
        turns = decoded(turns)
    if not isinstance(turns, list):
        raise BadRow(f"{field!r} is {kind_of(turns)}, not a list of turns")
    if not turns:
        raise BadRow(f"{field!r} holds no turns")
    messages = []
    for number, turn in enumerate(turns, 1):
        try:
            messages.append(read_turn(turn))
        except BadRow as reason:
            raise BadRow(f"turn {number}: {reason}") from None
    return messages


def read_turn(turn: object) -> dict[str, Any]:
    """``role``/``content`` (OpenAI) or ``from``/``value`` (ShareGPT) to one message.

    Raises:
        BadRow: an unknown role, or content that is not text.
    """
    if not isinstance(turn, dict):
        raise BadRow(f"a turn must be an object, not {kind_of(turn)}")
    role = _role(turn)
    content = turn["content"] if turn.get("content") is not None else turn.get("value")
    if role == "call":
        return {"role": "assistant", "content": "", "tool_calls": _calls(content)}
    message: dict[str, Any] = {"role": role}
    calls = turn.get("tool_calls") or turn.get("function_call")
    if calls and role == "assistant":
        message["content"] = "" if content is None else content_of(content, "content")
        message["tool_calls"] = _calls(calls)
    else:
        message["content"] = content_of(content, "content")
    for key in _KEPT:
        if turn.get(key) is not None:
            message[key] = text_of(turn[key], key)
    return _weighted(message, turn.get("weight"))


def content_of(value: object, what: str) -> str:
    """What a turn says: text, or a list of text parts, which are joined as they are.

    Raises:
        BadRow: anything else.
    """
    if isinstance(value, list):
        return "".join(_part(part, what) for part in value)
    return text_of(value, what)


def text_of(value: object, what: str) -> str:
    """Text as it is.

    Raises:
        BadRow: anything else.
    """
    if not isinstance(value, str):
        raise BadRow(f"{what!r} is {kind_of(value)}, not text")
    return value


def decoded(text: str) -> object:
    """The JSON value a string holds, or the string itself (tables keep lists as JSON text)."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _part(part: object, what: str) -> str:
    if not isinstance(part, dict):
        raise BadRow(f"{what!r} has a part that is {kind_of(part)}, not an object")
    if not isinstance(part.get("text"), str):
        raise BadRow(f"{what!r} has a part of type {part.get('type')!r}; only text can be trained")
    return part["text"]


def _role(turn: dict[str, Any]) -> str:
    spelled = turn["role"] if turn.get("role") is not None else turn.get("from")
    if not isinstance(spelled, str):
        raise BadRow(f"no role (keys: {', '.join(map(str, turn)) or 'none'})")
    role = ROLE_OF.get(spelled.strip().lower())
    if role is None:
        raise BadRow(f"unknown role {spelled!r} (known: system, user, assistant, tool)")
    return role


def _calls(value: object) -> list[dict[str, Any]]:
    """Tool calls as ``{"type": "function", "function": {"name", "arguments"}}``.

    Arguments written as JSON text are decoded, or a template would encode them twice.
    """
    if isinstance(value, str):
        value = decoded(value)
    calls = [_call(call) for call in (value if isinstance(value, list) else [value])]
    if not calls:
        raise BadRow("a function call without a function")
    return calls


def _call(call: object) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise BadRow(f"a function call must be an object with a name, not {kind_of(call)}")
    function = call["function"] if isinstance(call.get("function"), dict) else call
    if not isinstance(function.get("name"), str):
        raise BadRow("a function call has no name")
    arguments = function.get("arguments", function.get("parameters"))
    if isinstance(arguments, str):
        arguments = decoded(arguments)
    name = function["name"]
    result: dict[str, Any] = {"type": "function"}
    if isinstance(call.get("id"), str):
        result["id"] = call["id"]
    result["function"] = {"name": name, "arguments": {} if arguments is None else arguments}
    return result


def _weighted(message: dict[str, Any], weight: object) -> dict[str, Any]:
    """OpenAI's ``weight`` 0 marks an assistant turn that is context and not to be learned."""
    if weight is None or weight == 1 or message["role"] != "assistant":
        return message
    if weight != 0:
        raise BadRow(f"weight {weight!r} of a turn must be 0 or 1")
    return {**message, "weight": 0}
