"""From the bytes of one row to an object, and from a conversation to its id."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NoReturn

from formats.data.types import BadRow, Conversation

ID_BYTES = 16
_BOM = "\ufeff"


def parse(raw: bytes) -> dict[str, Any]:
    """The object that one row's bytes hold.

    Raises:
        BadRow: not UTF-8, not JSON (NaN and Infinity are not), not an object, or holding a lone
            surrogate, which no tokenizer and no file could take.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise BadRow(f"not UTF-8 (byte 0x{byte:02x} at position {error.start + 1})") from None
    try:
        value = _DECODER.decode(text.removeprefix(_BOM))
    except json.JSONDecodeError as error:
        raise BadRow(f"invalid JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise BadRow("invalid JSON: nested too deeply") from None
    except ValueError as error:
        raise BadRow(f"invalid JSON: {error}") from None
    if type(value) is not dict:
        raise BadRow(f"a row must be an object, not {kind_of(value)}")
    if "\\ud" in text or "\\uD" in text:
        _refuse_surrogates(value)
    return value


def identify(conversation: Conversation) -> bytes:
    """16 bytes, BLAKE2b-128 of the canonical JSON of ``[messages, tools]``.

    Raises:
        BadRow: a number in it is infinite.
    """
    try:
        text = _CANONICAL.encode([conversation.messages, conversation.tools])
    except ValueError:
        raise BadRow("holds a number too large for JSON") from None
    return hashlib.blake2b(text.encode("utf-8"), digest_size=ID_BYTES).digest()


def kind_of(value: object) -> str:
    """The JSON name of a value's type, with its article, for messages."""
    return _KINDS.get(type(value), type(value).__name__)


def shortened(raw: bytes, limit: int = 300) -> str:
    """Raw bytes as text that fits on a screen; bytes that are no UTF-8 show as ``\\xNN``."""
    text = raw[: 4 * limit].decode("utf-8", "backslashreplace")
    return text if len(text) <= limit else text[:limit] + " ..."


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _refuse_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(error.object[error.start])
        raise BadRow(f"holds a lone surrogate (U+{code:04X}), which is no character") from None


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)
_KINDS = {
    dict: "an object",
    list: "a list",
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
