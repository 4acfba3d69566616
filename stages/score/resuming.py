"""The half-done signatures of a killed run: begun, gone on with, or thrown away."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from formats import artifacts, blocks
from formats.errors import ArtifactError
from formats.signatures import PENDING, create

_TOLD = 80  # characters of a difference that still says something to a person


def default_block_rows(rows: int) -> int:
    """A power of two near 1/64 of the rows, between 16 and 4,096 (32 MiB of signatures at D = 4,096).

    A killed run loses less than one block, so small data sets get small blocks.
    """
    target = max(1, rows // 64)
    return min(4096, max(16, 1 << (target.bit_length() - 1)))


def open_partial(
    output: Path,
    rows: int,
    dims: int,
    block_rows: int | None,
    key: str,
    force: bool,
    facts: Mapping[str, Any] = {},
) -> Any:
    """The half-done artifact of a killed run, or a new one with every row pending.

    One with another key is thrown away when none of its blocks is done: nothing is lost.

    Args:
        output: the final place of the artifact.
        rows: N.
        dims: D.
        block_rows: rows in a block of a new artifact.
        key: of the result.
        force: throw away a half-done artifact with another key.
        facts: what the key was made of, by name, to say what differs.

    Raises:
        ArtifactError: a half-done output has another key; the message names what differs.
    """
    path = artifacts.partial(output)
    if path.exists():
        bound = partial_key(path)
        if bound == key:
            return blocks.open_writable(path)
        if bound is not None and not force and _any_done(path):
            raise ArtifactError(
                f"{path} is half done with {_differences(path, facts)}",
                fix="run the old command to finish it, or add --force to start over",
            )
        shutil.rmtree(path)
    group = create(path, rows, dims, block_rows or default_block_rows(rows))
    # The last bits of a matrix product depend on the number of threads: all who go on with this artifact
    # take the number it was begun with.
    group.attrs["threads"] = torch.get_num_threads()
    group.attrs["partial_facts"] = dict(facts)
    group.attrs["partial_key"] = key  # last: before this the folder counts as empty
    return group


def partial_key(path: Path) -> str | None:
    """The key a half-done artifact is bound to; None when it was killed before it had one."""
    try:
        return str(blocks.open_arrays(path, whole=False).attrs["partial_key"])
    except (ArtifactError, KeyError):
        return None


def _any_done(path: Path) -> bool:
    """Is there a block that would be lost?"""
    status = blocks.open_arrays(path, whole=False)["status"]
    return bool((np.asarray(status[:]) != PENDING).any())


def _differences(path: Path, facts: Mapping[str, Any]) -> str:
    """``rank 8 instead of 64, another model``: what the half-done artifact was begun with."""
    before = blocks.open_arrays(path, whole=False).attrs.get("partial_facts") or {}
    changed = [name for name in {**before, **facts} if before.get(name) != facts.get(name)]
    words = [_difference(name, before.get(name), facts.get(name)) for name in changed]
    return ", ".join(words) if before and words else "other data, model or settings"


def _difference(name: str, before: Any, now: Any) -> str:
    if name == "data":
        return "other data"
    told = f"{name.replace('_', '-')} {before!r} instead of {now!r}"
    if len(told) > _TOLD:  # hashes tell nothing
        return f"another {name.replace('_', ' ')}"
    return told
