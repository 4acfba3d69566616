"""What a row of the data holds for an evaluation: choices, tests, groups, the answer to compare with."""

from __future__ import annotations

import dataclasses
import json
import string
from dataclasses import dataclass
from typing import Any

from formats.chat_templates import is_learned
from formats.data import Dataset, Example
from formats.errors import DataError, SettingError
from stages.evaluate.settings import EvaluateSettings


@dataclass(frozen=True)
class Choices:
    """A row's multiple choice: the texts, and which is right."""

    texts: list[str]
    right: int


def read_choices(example: Example, settings: EvaluateSettings) -> Choices | None:
    """The row's choices, None where it has none.

    Raises:
        DataError: they are no list of at least two texts, or the right one cannot be told.
    """
    texts: Any = example.columns.get(settings.choices)
    if texts is None:
        return None
    place = f"{example.file}:{example.line} (row {example.row})"
    if isinstance(texts, dict):  # {"text": [...], "label": [...]}, as ARC has them
        texts = texts.get("text")
    usable = isinstance(texts, list) and len(texts) > 1
    if not usable or not all(isinstance(text, str) and text.strip() for text in texts):
        raise DataError(
            f"{place}: {settings.choices!r} is no list of two or more texts",
            fix="name the column with --choices-column",
        )
    right = _right(example.columns.get(settings.answer), texts)
    if right is None:
        said = example.columns.get(settings.answer)
        raise DataError(
            f"{place}: {settings.answer!r} is {str(said)[:60]!r}, which names none of the "
            f"{len(texts)} choices",
            fix="name the column of the right one (index from 0, letter or text) with "
            "--answer-column",
        )
    return Choices(texts, right)


def _right(said: Any, texts: list[str]) -> int | None:
    if isinstance(said, str):
        if said in texts:
            return texts.index(said)
        letters = string.ascii_uppercase[: len(texts)]
        if len(said.strip()) == 1 and said.strip().upper() in letters:
            return letters.index(said.strip().upper())
        return None
    whole = isinstance(said, (int, float)) and not isinstance(said, bool) and said == int(said)
    return int(said) if whole and 0 <= said < len(texts) else None


def read_tests(example: Example, settings: EvaluateSettings) -> str:
    """The row's tests, one below the other.

    Raises:
        SettingError: it has none.
    """
    tests: Any = example.columns.get(settings.tests)
    lines = tests if isinstance(tests, list) else [tests]
    if not lines or not all(isinstance(line, str) and line.strip() for line in lines):
        raise SettingError(
            f"{example.file}:{example.line} has no tests in column {settings.tests!r}",
            fix=f"name it with --tests-column (the row has {', '.join(example.columns)}), "
            "or drop --run-code",
        )
    return "\n".join(lines)


def group_columns(
    dataset: Dataset, rows: list[int], settings: EvaluateSettings
) -> dict[str, list[str]]:
    """The rows' values of the ``by`` columns, as text; ``null`` where a row has none.

    Raises:
        SettingError: no row has such a column.
    """
    found: dict[str, list[str]] = {name: [] for name in settings.by}
    known: dict[str, None] = {}
    for row in rows if settings.by else ():
        columns = dataset[row].columns
        known.update(dict.fromkeys(columns))
        for name in settings.by:
            found[name].append(_as_text(columns.get(name)))
    for name in found:
        if name not in known:
            raise SettingError(
                f"no row has a column {name!r} to group by", fix=f"there are {', '.join(known)}"
            )
    return found


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def reference(example: Example, settings: EvaluateSettings) -> str:
    """The answer a generated one is compared with."""
    choices = read_choices(example, settings)
    said = answer_of(example)
    if choices and said == str(example.columns.get(settings.answer)):
        return choices.texts[choices.right]
    return said


def with_answer(example: Example, text: str) -> Example:
    """The same conversation, its last answer being ``text``."""
    return _with(example, _last_answer(example), {"role": "assistant", "content": text})


def with_question(example: Example, more: str) -> Example:
    """The same, with ``more`` behind its last question."""
    asked = [n for n, message in enumerate(example.messages) if message["role"] == "user"]
    if not asked:
        return example
    turn = example.messages[asked[-1]]
    return _with(example, asked[-1], {**turn, "content": turn["content"] + more})


def _with(example: Example, turn: int, message: dict[str, Any]) -> Example:
    messages = [*example.messages]
    messages[turn] = message
    return dataclasses.replace(example, messages=messages)


def _last_answer(example: Example) -> int:
    if example.messages[0]["role"] == "text":
        return 0
    return max(n for n, message in enumerate(example.messages) if is_learned(message))


def answer_of(example: Example) -> str:
    """The text of its last answer, as read."""
    return str(example.messages[_last_answer(example)].get("content") or "")
