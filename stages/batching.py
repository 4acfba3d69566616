"""Rows of nearly equal length together, so that little is padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Rows in batches of nearly equal length: indices, longest rows first.

    Args:
        lengths: tokens per row.
        budget: padded tokens allowed in a batch; a longer row still gets a batch of its own.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    start = 0
    while start < len(order):
        count = max(1, budget // max(1, lengths[order[start]]))
        yield order[start : start + count]
        start += count
