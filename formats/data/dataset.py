"""A dataset: every row read and judged once, then served by number from disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from operator import index
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from formats.data import hub, readers, tables
from formats.data.rejected import EMPTY, BadRows
from formats.data.rows import identify, parse
from formats.data.shapes import read_shape
from formats.data.sources import Located, content_sha256, locate
from formats.data.store import Place, RowStore
from formats.data.types import BadRow, Conversation, DataOptions, Example, Source
from formats.errors import DataChangedError, DataError
from formats.places import Url, join


class Dataset:
    """Usable rows by number, read from disk when asked for; a context manager.

    Attributes:
        options: what it was opened with.
        shape: the shape of the rows; several, in order of appearance, are joined by ``+``.
        sources: what the rows came from, in order.
        rejected: how many rows could not be used.
        ids: (N, 16) uint8, the rows' ids.
    """

    def __init__(
        self,
        options: DataOptions,
        located: list[Located],
        store: RowStore,
        shapes: list[str],
        rejected: int,
    ) -> None:
        self.options = options
        self.shape = "+".join(shapes)
        self.rejected = rejected
        self._located = located
        self._store = store
        self.sources = [
            Source(item.path, item.sha256, rows)
            for item, rows in zip(located, store.rows_per_source(), strict=True)
        ]
        self.ids: np.ndarray = store.ids()

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[Example]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> Example:
        """One example.

        Raises:
            IndexError: no such row; negative numbers are none.
            DataChangedError: the file no longer holds that row.
        """
        row = index(row)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of a dataset of {len(self)} rows")
        place, identity = self._store.place(row), self._store.identity(row)
        path = self._located[place.source].path
        try:
            columns = parse(self._store.fetch(row))
            conversation = read_shape(columns, self.options)
            changed = identify(conversation) != identity
        except BadRow:
            changed = True
        if changed:
            raise DataChangedError(
                f"{path}:{place.line} changed while it was in use", fix="start again", row=row
            )
        messages, tools = conversation.messages, conversation.tools
        return Example(row, identity, messages, tools, columns, path, place.line)

    def reference(self, relative_to: Path | None) -> dict[str, Any]:
        """What :func:`open_reference` needs to open the same rows again, as a JSON object.

        Args:
            relative_to: the folder that paths are written relative to; absolute paths if None.
        """
        sources = [
            {
                "kind": item.kind,
                "path": _written(item, relative_to),
                "sha256": item.sha256,
                "rows": source.rows,
            }
            for item, source in zip(self._located, self.sources, strict=True)
        ]
        return {"sources": sources, "shape": self.shape, "options": self.options.to_json()}

    def close(self) -> None:
        """Closes files and removes the temporary spool."""
        self._store.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def find_sources(paths: Sequence[str], options: DataOptions) -> list[tuple[str, str]]:
    """(path, sha256) of everything ``paths`` stand for, without parsing a row.

    Raises:
        DataError: a name stands for nothing readable, or two for the same file.
        SettingError: ``--split`` or ``--subset`` for a plain file.
    """
    return [(item.path, item.sha256) for item in locate(paths, options)]


def open_dataset(
    paths: Sequence[str],
    options: DataOptions = DataOptions(),
    *,
    rejected: Path | None = None,
) -> Dataset:
    """Reads and judges every row of files, globs, folders and Hugging Face datasets.

    Args:
        paths: in reading order. ``-`` is no path here: see :func:`spool_stdin`.
        options: see :class:`DataOptions`.
        rejected: where rows that cannot be used are written under ``on_bad_row="skip"``: JSON
            lines of ``file``, ``line``, ``reason`` and ``text`` (shortened).

    Raises:
        BadRowsError: some rows cannot be used, under ``on_bad_row="fail"``.
        DataError: nothing is usable, or a source is missing or broken.
        SettingError: ``--split`` or ``--subset`` for a plain file.
    """
    return _read(locate(paths, options), options, rejected)


def open_reference(reference: dict[str, Any], relative_to: Path | None) -> Dataset:
    """Opens again what :meth:`Dataset.reference` described.

    Args:
        reference: the JSON object.
        relative_to: the folder that its paths are relative to, as when it was written.

    Raises:
        DataChangedError: a source's content is not what it was; the message names it.
        DataError: a source is missing; the message names it.
    """
    options = DataOptions.from_json(reference["options"])
    located = [_found_again(source, relative_to, options) for source in reference["sources"]]
    return _read(located, options, None)


def spool_stdin(stream: BinaryIO, to: Path) -> Path:
    """Copies a stream of JSON lines to a file, which can then be opened like any other.

    The file appears under its name when it is whole. Returns ``to``, which must end in ``.jsonl``.

    Raises:
        DataError: it cannot be written.
    """
    part = to.with_name(to.name + ".part")
    try:
        with part.open("wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        os.replace(part, to)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise DataError(f"cannot copy standard input to {to}: {error.strerror}") from error
    return to


def _read(located: list[Located], options: DataOptions, rejected: Path | None) -> Dataset:
    store = RowStore([item.path for item in located])
    try:
        with BadRows(options.on_bad_row, rejected) as bad:
            shapes = _fill(store, bad, located, options)
            bad.finish(len(store))
        store.finish()
        return Dataset(options, located, store, shapes, bad.total)
    except BaseException:
        store.close()
        raise


def _fill(store: RowStore, bad: BadRows, located: list[Located], options: DataOptions) -> list[str]:
    """Reads every row into the store or among the bad ones; the shapes met, in order."""
    shapes: dict[str, None] = {}
    for number, item in enumerate(located):
        empty = True
        for raw in _raw_rows(item, options):
            empty = False
            try:
                conversation, identity = _judge(raw, options)
            except BadRow as reason:
                bad.add(item.path, raw.line, str(reason), raw.data)
                continue
            store.add(Place(number, raw.line), raw.data, raw.offset, identity)
            shapes.setdefault(conversation.shape)
            if len(store) == options.limit:
                return list(shapes)
        if empty:
            bad.add(item.path, 1, EMPTY, b"")
    return list(shapes)


def _judge(raw: readers.Raw, options: DataOptions) -> tuple[Conversation, bytes]:
    if raw.problem is not None:
        raise BadRow(raw.problem)
    conversation = read_shape(parse(raw.data), options)
    return conversation, identify(conversation)


def _raw_rows(item: Located, options: DataOptions) -> Iterator[readers.Raw]:
    if item.kind == "hub":
        return tables.number_records(hub.read_records(_hub_again(item.path, options)))
    if item.kind == "folder":
        return tables.number_records(hub.read_records(hub.open_folder(item.path, options)))
    if item.path.lower().endswith(".parquet"):
        return tables.read_parquet(item.path)
    if item.path.lower().endswith((".arrow", ".feather")):
        return tables.read_arrow(item.path)
    return readers.read_text_file(item.path)


def _hub_again(name: str, options: DataOptions) -> Any:
    try:
        return hub.open_hub(name, options)
    except hub.NotOnHubError as error:
        raise DataError(f"{name} could not be loaded from the hub: {error}") from None


def _written(item: Located, relative_to: Path | None) -> str:
    if item.kind == "hub":
        return item.path
    whole = os.path.abspath(item.path)
    return whole if relative_to is None else os.path.relpath(whole, os.path.abspath(relative_to))


def _found_again(source: dict[str, Any], relative_to: Path | None, options: DataOptions) -> Located:
    kind, path = source["kind"], source["path"]
    if kind != "hub":
        place = join(relative_to or Path(), path)
        if isinstance(place, Url):
            raise DataError(
                f"the examples are in {place}, and rows are read from local files alone",
                fix="copy the file here; name it with --data, or put the artifact beside it",
            )
        path = str(place)
        if not os.path.exists(path):
            raise DataError(f"the data file {path} is missing", fix="put it back where it was")
    item = Located(kind, path, content_sha256(kind, path, options))
    if item.sha256 != source["sha256"]:
        raise DataChangedError(
            f"{path} is no longer the file that was read before (its content has changed)",
            fix="restore it, or start again from score",
            path=path,
        )
    return item
