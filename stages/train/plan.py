"""Checks made before anything is launched: the plan fits the ranks, and the data are the plan's data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from formats.allocation import Allocation
from formats.artifacts import rebase_dataset
from formats.errors import ClusterCliError, DataChangedError, SettingError


def check_world(allocation: Allocation, size: int) -> None:
    """The number of running ranks is the plan's.

    Raises:
        SettingError: it is not; the message holds the command that makes a fitting plan.
    """
    if size != allocation.ranks:
        raise SettingError(
            f"{allocation.path} is made for {allocation.ranks} ranks, but {size} are running",
            fix=f"make one with `cluster-cli allocate SELECTION --ranks {size} -o {allocation.path}`, "
            f"or start {allocation.ranks} ranks",
            ranks=allocation.ranks,
            world_size=size,
        )


def reference(allocation: Allocation, data: tuple[str, ...]) -> dict[str, Any]:
    """The dataset's reference with absolute paths, or with other files in the old ones' places.

    Raises:
        SettingError: there are not as many other files as the allocation's data have.
    """
    known = rebase_dataset(allocation.header.dataset, allocation.path.parent, None)
    if not data:
        return known
    sources = known.get("sources", [])
    if len(data) != len(sources):
        raise SettingError(
            f"--data names {len(data)} files, the allocation was made from {len(sources)}",
            fix="name them all, in the order given to `cluster-cli score`",
        )
    moved = [{**source, "path": path} for source, path in zip(sources, data, strict=True)]
    return {**known, "sources": moved}


def open_data(allocation: Allocation, data: tuple[str, ...]) -> Any:
    """The dataset the allocation's rows belong to; a context manager.

    Raises:
        DataError, DataChangedError: a file is missing, or its content is not what it was.
    """
    from formats.data import open_reference

    return open_reference(reference(allocation, data), None)


def check_data(allocation: Allocation, data: tuple[str, ...]) -> int:
    """Every row of the plan still holds the content it was planned with.

    Returns:
        number of distinct rows in the plan.

    Raises:
        DataChangedError: a file has changed; names the first row of the plan that is another now.
    """
    expected: dict[int, str] = {}
    for rank in range(allocation.ranks):
        for batch in allocation.rank(rank):
            expected.update(zip(batch.rows, batch.ids, strict=True))
    try:
        with open_data(allocation, data) as dataset:
            _compare(allocation, dataset, expected)
    except DataChangedError:
        _look_closer(allocation, data, expected)
        raise
    return len(expected)


def _look_closer(allocation: Allocation, data: tuple[str, ...], expected: dict[int, str]) -> None:
    """Raises a better error, one that names a row, when the changed files can still be read."""
    from formats.data import DataOptions, open_dataset

    known = reference(allocation, data)
    options = replace(DataOptions.from_json(known["options"]), on_bad_row="fail")
    try:
        dataset = open_dataset([source["path"] for source in known["sources"]], options)
    except ClusterCliError:
        return  # that it has changed is all there is to say
    with dataset:
        _compare(allocation, dataset, expected)


def _compare(allocation: Allocation, dataset: Any, expected: dict[int, str]) -> None:
    for row in sorted(expected):
        if row >= len(dataset):
            paths = ", ".join(source.path for source in dataset.sources)
            raise _changed(f"{paths}: row {row} is gone, it was there", allocation, row)
        if dataset.ids[row].tobytes().hex() != expected[row]:
            example = dataset[row]
            place = f"{example.file}:{example.line}: row {row}"
            raise _changed(f"{place} holds something else than", allocation, row)


def _changed(what: str, allocation: Allocation, row: int) -> DataChangedError:
    return DataChangedError(
        f"{what} when {allocation.path} was made",
        fix="bring the old data back, or begin again with `cluster-cli score`",
        row=row,
    )
