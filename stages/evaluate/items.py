"""What there is to compute for every row: sequences to take the loss of, and prompts to answer.

The list of items follows from data and settings alone, so all ranks and all resumptions number them alike.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from formats.data import Dataset, Example
from formats.errors import DataError, SettingError
from formats.rendering import OK, PROMPT_TOO_LONG, TRUNCATED, Rendered, Renderer
from stages.evaluate.rows import (
    Choices,
    answer_of,
    read_choices,
    read_tests,
    with_answer,
    with_question,
)
from stages.evaluate.settings import EvaluateSettings

LOSS, CHOICE, ANSWER = "loss", "choice", "answer"

_WHOLE = 1 << 30  # a maximum length that nothing reaches
_TESTS = "Your code should pass these tests:"


@dataclass(frozen=True)
class Item:
    """One sequence for the model.

    Attributes:
        kind: ``LOSS``, ``CHOICE`` or ``ANSWER``.
        row: of the data.
        choice: which of the row's choices.
        input_ids: (T,) int32; of an answer, the prompt alone.
        counted: (T,) bool, tokens whose loss is taken; none of a prompt.
    """

    kind: str
    row: int
    choice: int
    input_ids: np.ndarray
    counted: np.ndarray


class Reader:
    """Turns examples into items.

    Args:
        tokenizer: of the model.
        settings: ``max_length`` resolved.
    """

    def __init__(self, tokenizer: Any, settings: EvaluateSettings) -> None:
        assert settings.max_length is not None
        template = settings.chat_template
        self._settings = settings
        self._cut = Renderer(tokenizer, max_length=settings.max_length, chat_template=template)
        self._whole = Renderer(tokenizer, max_length=_WHOLE, chat_template=template)
        added = tokenizer.added_tokens_decoder.items()
        self._special = {n for n, token in added if token.special} | set(tokenizer.all_special_ids)
        self.stops = {tokenizer.eos_token_id} - {None}
        self.too_long: Counter[str] = Counter()

    def read(self, example: Example) -> tuple[int, list[Item]]:
        """The row's status (``formats.rendering``) and its items; none where it is not usable.

        Raises:
            DataError: the chat template refuses it, or its right choice cannot be told.
            SettingError: answers or tests are asked for, and the row has no question or no tests.
        """
        choices = read_choices(example, self._settings)
        if choices and answer_of(example) == str(example.columns.get(self._settings.answer)):
            example = with_answer(example, choices.texts[choices.right])
        rendered = self._cut(example)
        if rendered.status not in (OK, TRUNCATED):
            return rendered.status, []
        items = [Item(LOSS, example.row, 0, rendered.input_ids, rendered.supervised)]
        if choices:
            items += self._choices(example, choices)
        if self._settings.generates:
            items += self._prompt(example)
        return rendered.status, items

    def _choices(self, example: Example, choices: Choices) -> list[Item]:
        """The row once with each choice as its answer; none at all where one does not fit."""
        items = []
        for number, text in enumerate(choices.texts):
            rendered = self._whole(with_answer(example, text))
            counted = self._without_close(rendered)
            items.append(Item(CHOICE, example.row, number, rendered.input_ids, counted))
        return self._fitting(items)

    def _prompt(self, example: Example) -> list[Item]:
        if example.messages[0]["role"] == "text":
            raise SettingError(
                f"{example.file}:{example.line} is plain text, there is no question to answer",
                fix="drop --generate and --run-code, or give data with questions and answers",
            )
        if self._settings.run_code:
            tests = read_tests(example, self._settings)
            if self._settings.show_tests:
                example = with_question(example, f"\n\n{_TESTS}\n\n{tests}")
        rendered = self._whole(example)
        start, last = _last_run(rendered.supervised)
        if int(rendered.input_ids[last]) in self._special:
            self.stops.add(int(rendered.input_ids[last]))
        prompt = rendered.input_ids[:start]
        item = Item(ANSWER, example.row, 0, prompt, np.zeros(len(prompt), bool))
        return self._fitting([item])

    def _fitting(self, items: list[Item]) -> list[Item]:
        """The items, or none of them where one is longer than the maximum length."""
        assert self._settings.max_length is not None
        if max(len(item.input_ids) for item in items) <= self._settings.max_length:
            return items
        self.too_long[items[0].kind] += 1
        return []

    def _without_close(self, rendered: Rendered) -> np.ndarray:
        """The last turn's own tokens; the token that ends a turn is every choice's."""
        start, last = _last_run(rendered.supervised)
        while last > start and int(rendered.input_ids[last]) in self._special:
            last -= 1
        counted = np.zeros(len(rendered.input_ids), bool)
        counted[start : last + 1] = True
        return counted


@dataclass(frozen=True)
class Read:
    """What the data hold.

    Attributes:
        items: what to compute.
        status: (N,) uint8 per row, see ``formats.rendering``.
        stops: tokens that end an answer.
        too_long: kind -> measured rows without items of it, because they exceed the maximum length.
    """

    items: list[Item]
    status: np.ndarray
    stops: list[int]
    too_long: dict[str, int]

    @property
    def rows(self) -> list[int]:
        """The measured rows, ascending."""
        return [item.row for item in self.items if item.kind == LOSS]


def read_items(dataset: Dataset, tokenizer: Any, settings: EvaluateSettings) -> Read:
    """All items of the data.

    Raises:
        DataError, SettingError: see ``Reader.read``; or no row is usable.
    """
    reader = Reader(tokenizer, settings)
    items: list[Item] = []
    status = np.zeros(len(dataset), np.uint8)
    for example in dataset:
        status[example.row], found = reader.read(example)
        items += found
    if not items:
        long = int((status == PROMPT_TOO_LONG).sum())
        raise DataError(
            f"no row of the data can be evaluated: {long:,} prompts are longer than "
            f"{settings.max_length} tokens, {len(dataset) - long:,} answers are empty",
            fix="raise --max-length" if long else "give other data",
        )
    return Read(items, status, sorted(reader.stops), dict(reader.too_long))


def _last_run(supervised: np.ndarray) -> tuple[int, int]:
    """First and last token of the last turn that is supervised."""
    last = int(np.flatnonzero(supervised)[-1])
    before = np.flatnonzero(~supervised[:last])
    return (int(before[-1]) + 1 if len(before) else 0), last


def portions(batches: list[list[int]], most: int) -> list[list[list[int]]]:
    """Batches in runs of equal number, at most ``most`` of them."""
    size = max(1, math.ceil(len(batches) / most))
    return [batches[start : start + size] for start in range(0, len(batches), size)]
