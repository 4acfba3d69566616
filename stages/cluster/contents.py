"""From rows to distinct contents, in an order that does not depend on the order of the rows.

Everything that is fitted sees contents sorted by their id, so a shuffled dataset gives the same map.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formats.signatures import DUPLICATE, OK, TRUNCATED


@dataclass(frozen=True)
class Contents:
    """The U distinct usable contents, ascending by id.

    Attributes:
        row: (U) int64, the first usable row of each content: the one that carries its signature.
        multiplicity: (U) int64, usable and duplicate rows with this content.
        of_row: (N) int64, index of each row's content; -1 where the row is not usable.
        key: (U) uint64, first eight bytes of the id: uniform, for sampling.
    """

    row: np.ndarray
    multiplicity: np.ndarray
    of_row: np.ndarray
    key: np.ndarray

    def __len__(self) -> int:
        return len(self.row)

    def only(self, chosen: np.ndarray) -> Contents:
        """Some of the contents; rows of the others count as not usable."""
        place = np.full(len(self) + 1, -1)
        place[chosen] = np.arange(len(chosen))
        return Contents(
            self.row[chosen], self.multiplicity[chosen], place[self.of_row], self.key[chosen]
        )


def find_contents(example_id: np.ndarray, status: np.ndarray) -> Contents:
    """Groups rows by content.

    A duplicate row belongs to the usable row with its id; where that one is not usable, neither is the
    duplicate.

    Args:
        example_id: (N, 16) uint8.
        status: (N) uint8.
    """
    rows = len(status)
    high, low = (np.ascontiguousarray(example_id).view(">u8").astype(np.uint64).reshape(rows, 2)).T
    usable = (status == OK) | (status == TRUNCATED)
    member = usable | (status == DUPLICATE)
    # Usable rows come first inside a content, then the earliest.
    order = np.lexsort((~usable, low, high))
    order = order[member[order]]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (high[order[1:]] != high[order[:-1]]) | (low[order[1:]] != low[order[:-1]])
    group = np.cumsum(first) - 1
    kept = usable[order[first]]  # a content none of whose rows is usable has no signature
    renumbered = np.where(kept, np.cumsum(kept) - 1, -1)
    of_row = np.full(rows, -1, dtype=np.int64)
    of_row[order] = renumbered[group] if len(group) else -1
    row = order[first][kept]
    multiplicity = np.bincount(of_row[of_row >= 0], minlength=len(row))
    return Contents(row, multiplicity, of_row, high[row])


def draw(contents: Contents, count: int, seed: int) -> np.ndarray:
    """Indices of a uniform sample of contents, ascending; the same contents in any row order.

    Args:
        contents: what to draw from.
        count: how many; all when there are no more.
        seed: other seeds draw other contents.
    """
    if count >= len(contents):
        return np.arange(len(contents))
    return np.sort(np.argsort(mix(contents.key, seed), kind="stable")[:count])


def mix(key: np.ndarray, seed: int) -> np.ndarray:
    """Seeded scrambling of 64-bit keys (the finaliser of SplitMix64, Steele et al. 2014)."""
    offset = (seed + 1) * 0x9E3779B97F4A7C15 % 2**64
    value = key + np.uint64(offset)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
