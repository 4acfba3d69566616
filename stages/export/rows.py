"""The rows of an export: everything the data file says, and what the plan adds to it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from formats import artifacts
from formats.artifacts import Header
from formats.chat_templates import is_learned
from formats.data import Dataset, Example, open_reference
from formats.errors import DataChangedError, DataError, SettingError
from formats.places import is_url, place, relative
from stages.export.order import Places

# What is added to a row. A column of the data with such a name is kept as `original_<name>`.
ADDED = ("weight", "cluster", "id")
CHAT, ANSWER, TEXT = "chat", "answer", "text"


def open_data(header: Header, folder: Any, data: tuple[str, ...]) -> Dataset:
    """The dataset that an artifact's rows belong to; a context manager.

    Args:
        header: the artifact's.
        folder: the one the artifact lies in.
        data: where the files are now, one for each that was read; empty: where they were.

    Raises:
        SettingError: there are not as many files in ``data`` as were read.
        DataError: a file is missing.
        DataChangedError: a file's content is not what it was; the message names it.
    """
    known = artifacts.rebase_dataset(header.dataset, folder, None)
    sources = known.get("sources", [])
    if data and len(data) != len(sources):
        raise SettingError(
            f"--data names {len(data)} files, {len(sources)} were read",
            fix="name them all, in the order given to `cluster-cli score`",
        )
    paths = data or [source["path"] for source in sources]
    moved = [
        {**source, "path": path if source["kind"] == "hub" else relative(place(path), None)}
        for source, path in zip(sources, paths, strict=True)
    ]
    for source in moved:
        path = source["path"]
        if source["kind"] != "hub" and not is_url(path) and not os.path.exists(path):
            raise DataError(
                f"the data file {path} is missing",
                fix="put it back, or say where it is now with --data",
            )
    return open_reference({**known, "sources": moved}, None)


def check(places: Places, dataset: Dataset) -> None:
    """Every row still holds the content it was chosen for.

    Raises:
        DataChangedError: one does not; names the first.
    """
    there = places.row < len(dataset)
    same = there.copy()
    same[there] = (dataset.ids[places.row[there]] == places.id[there]).all(axis=1)
    if same.all():
        return
    row = int(places.row[~same].min())
    paths = ", ".join(source.path for source in dataset.sources)
    raise DataChangedError(
        f"{paths}: row {row} is not the one that was chosen",
        fix="bring the old data back, or begin again with `cluster-cli score`",
        row=row,
    )


@dataclass(frozen=True)
class Facts:
    """What can be said of all rows of an export.

    Attributes:
        style: TEXT; ANSWER (of each conversation the last turn is learned and no other); CHAT.
        muted: rows with an assistant turn that is not to be learned.
        tools: whether tools are called or offered.
    """

    style: str
    muted: int
    tools: bool


def look(places: Places, dataset: Dataset) -> Facts:
    """Looks at all rows.

    Raises:
        DataError: some rows are plain text and others are conversations.
    """
    styles: Counter[str] = Counter()
    muted, tools = 0, False
    for row in np.unique(places.row).tolist():
        example = dataset[row]
        styles[_style(example)] += 1
        said = [message for message in example.messages if message["role"] == "assistant"]
        muted += any(not is_learned(message) for message in said)
        tools = tools or bool(example.tools) or any("tool_calls" in message for message in said)
    if styles[TEXT] and len(styles) > 1:
        raise DataError(
            f"{styles[TEXT]} rows are plain text, {styles.total() - styles[TEXT]} conversations",
            fix="export them apart",
        )
    style = next(style for style in (TEXT, CHAT, ANSWER) if styles[style])
    return Facts(style, muted, tools)


def _style(example: Example) -> str:
    if example.messages[0]["role"] == "text":
        return TEXT
    return ANSWER if sum(map(is_learned, example.messages)) == 1 else CHAT


class Rows:
    """The rows of an export, one at a time, as often as asked for.

    Args:
        columns: names of further columns to add: ``messages``; or ``prompt`` and ``completion``, lists
            of messages, the latter with the answer alone.

    Attributes:
        renamed: the data's own columns that had to step aside, once all rows were read.
    """

    def __init__(self, places: Places, dataset: Dataset, columns: tuple[str, ...] = ()) -> None:
        self._places = places
        self._dataset = dataset
        self._columns = columns
        self.renamed: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        numbers = zip(
            self._places.row.tolist(),
            self._places.weight.tolist(),
            self._places.cluster.tolist(),
            strict=True,
        )
        for row, weight, cluster in numbers:
            example = self._dataset[row]
            ours = {
                **self._conversation(example),
                "weight": weight,
                "cluster": cluster,
                "id": example.id.hex(),
            }
            yield {**self._kept(example.columns, ours), **ours}

    def _conversation(self, example: Example) -> dict[str, Any]:
        """The columns a trainer reads the conversation from."""
        last = max((i for i, turn in enumerate(example.messages) if is_learned(turn)), default=0)
        all_of_it = {
            "messages": example.messages[: last + 1],  # the rest is not trained on, nor scored
            "prompt": example.messages[:last],
            "completion": example.messages[last : last + 1],
        }
        found = {name: all_of_it[name] for name in self._columns}
        if self._columns and example.tools and not example.columns.get("tools"):
            found["tools"] = example.tools
        return found

    def _kept(self, columns: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
        """The row's own columns; those that ours would hide get another name."""
        kept = {}
        for name, value in columns.items():
            if name in ours and value != ours[name]:
                other = f"original_{name}"
                while other in columns:
                    other += "_"
                self.renamed[name] = other
                kept[other] = value
            else:
                kept[name] = value
        return kept
