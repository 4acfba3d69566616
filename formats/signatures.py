"""``signatures.zarr``: one projected gradient direction per example, and what became of each row.

| array | shape, dtype | meaning |
| --- | --- | --- |
| signature | (N, D) float16 | unit rows; rows whose status is not usable are zero |
| example_id | (N, 16) uint8 | BLAKE2b-128 of the example's content |
| norm | (N) float32 | length of the projected gradient before normalising |
| loss | (N) float32 | mean loss of the response tokens, in nats |
| prompt_tokens, response_tokens | (N) int32 | tokens after truncation |
| status | (N) uint8 | index into ``STATUS_NAMES`` |

Root attributes: the common header, ``space`` (all that makes signatures comparable), ``space_id`` (its
hash) and ``rendering`` (how rows became tokens, so that ``train`` does the same).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from formats import artifacts, blocks
from formats.errors import ArtifactError
from formats.places import place
from formats.rendering import (
    DUPLICATE,
    EMPTY_RESPONSE,
    NONFINITE,
    OK,
    PROMPT_TOO_LONG,
    STATUS_NAMES,
    TRUNCATED,
)

__all__ = [
    "DUPLICATE",
    "EMPTY_RESPONSE",
    "NONFINITE",
    "OK",
    "PENDING",
    "PROMPT_TOO_LONG",
    "STATUS_NAMES",
    "TRUNCATED",
    "Signatures",
    "as_keys",
    "create",
]


PENDING = 255  # the status of a row nobody has written yet; none is left in a complete artifact


def as_keys(ids: np.ndarray) -> np.ndarray:
    """(N, 16) uint8 ids as (N,) values that sort, compare and go into ``np.unique``."""
    return np.ascontiguousarray(ids).view("V16").ravel()


def create(path: Path, rows: int, dims: int, block: int) -> Any:
    """Empty signature arrays of their final size (see the table above); the open group."""
    arrays = {
        "signature": ((rows, dims), "float16"),
        "example_id": ((rows, 16), "uint8"),
        "norm": ((rows,), "float32"),
        "loss": ((rows,), "float32"),
        "prompt_tokens": ((rows,), "int32"),
        "response_tokens": ((rows,), "int32"),
        "status": ((rows,), "uint8"),
    }
    return blocks.create_group(path, arrays, block, fills={"status": PENDING})


@dataclass(frozen=True)
class Signatures:
    """A complete ``signatures.zarr``, opened for reading."""

    path: Path
    header: artifacts.Header
    group: Any

    @classmethod
    def open(cls, path: Path) -> Signatures:
        """Opens and checks the artifact.

        Raises:
            ArtifactMissingError, ArtifactError: see ``artifacts.read_header``.
        """
        path = place(path)
        header = artifacts.read_header(path, "signatures")
        if "space" not in header.extra or "space_id" not in header.extra:
            raise ArtifactError(f"{path} does not say its signature space")
        return cls(path, header, blocks.open_arrays(path))

    @property
    def rows(self) -> int:
        """N, the number of examples."""
        return int(self.group["signature"].shape[0])

    @property
    def dims(self) -> int:
        """D, the numbers kept of each signature."""
        return int(self.group["signature"].shape[1])

    @property
    def block(self) -> int:
        """Rows in a stored block."""
        return int(self.group["signature"].chunks[0])

    @property
    def space(self) -> dict[str, Any]:
        """What makes signatures comparable."""
        return self.header.extra["space"]

    @property
    def space_id(self) -> str:
        """Hash of ``space``."""
        return self.header.extra["space_id"]

    def column(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """One of the arrays above, whole or in part, with its stored dtype."""
        return blocks.read(self.group, name, rows)

    def stream(self, rows_at_once: int | None = None) -> Iterator[tuple[slice, np.ndarray]]:
        """The signatures block by block: (rows, (n, D) float32). Memory: one block."""
        step = max(self.block, (rows_at_once or self.block) // self.block * self.block)
        for start in range(0, self.rows, step):
            part = slice(start, min(start + step, self.rows))
            yield part, self.column("signature", part).astype(np.float32)
