"""Moves single examples between ranks until their lengths can be matched.

Whole clusters rarely add up to equal distributions of length, and one longer rank makes all others
wait at every step. Going from the longest example to the shortest, a rank may be ahead of its share
or behind it by as many examples as lie within a tolerance of the length at hand; beyond that, one of
its examples there moves to the rank that is farthest behind. ``separation`` then keeps at every step
what moved away from the rest of its cluster, so ranks still work on different lessons at any time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.allocate.shape import Shape

_BIN = 0.002  # relative width of the lengths that are looked at together


def level_out(
    rank: np.ndarray, cluster: np.ndarray, tokens: np.ndarray, shape: Shape, tolerance: float
) -> None:
    """Changes ``rank`` in place; row counts stay as they are.

    Args:
        rank: (M) owners, as many of each rank as ``shape.rank_rows`` says.
        cluster: (M).
        tokens: (M).
        shape: the plan's shape.
        tolerance: relative difference of lengths that ranks may have at one step.
    """
    if shape.ranks == 1:
        return
    order = np.lexsort((cluster, -tokens))
    edges = _edges(tokens[order], shape.ranks)
    slack = _slack(tokens[order], edges, shape.ranks, tolerance)
    share_R = shape.rank_rows() / shape.examples
    books = _Books(rank, cluster, np.zeros(shape.ranks), np.zeros(int(cluster.max()) + 1, bool))
    for low, high, allowed in zip(edges[:-1], edges[1:], slack, strict=True):
        members = order[low:high]
        books.ahead += np.bincount(rank[members], minlength=shape.ranks) - share_R * (high - low)
        if np.abs(books.ahead).max() > allowed:
            _exchange(books, members, allowed)
    _exchange(books, order, 0.5)  # the last few lengths may have held too few examples to give


@dataclass
class _Books:
    """State of the walk from long to short.

    Attributes:
        rank: (M) owners, changed in place.
        cluster: (M).
        ahead: (R) examples owned so far, minus the rank's share of all so far.
        split: whether an example of the cluster has moved.
    """

    rank: np.ndarray
    cluster: np.ndarray
    ahead: np.ndarray
    split: np.ndarray


def _edges(descending: np.ndarray, ranks: int) -> list[int]:
    """Classes of length: at least one example per rank, and all that lie within ``_BIN`` of them."""
    edges = [0]
    while edges[-1] < len(descending):
        level = min(edges[-1] + ranks, len(descending))
        shortest = descending[level - 1] * (1 - _BIN)
        edges.append(int(np.searchsorted(-descending, -shortest, side="right")))
    return edges


def _slack(descending: np.ndarray, edges: list[int], ranks: int, tolerance: float) -> np.ndarray:
    """What a rank may be ahead or behind after each class: the examples per rank that are shorter by
    less than the tolerance. At least half a row, since shares are no whole numbers.
    """
    end = np.array(edges[1:])
    shortest = descending[end - 1] * (1 - tolerance)
    near = np.searchsorted(-descending, -shortest, side="right") - end
    return np.floor(near / ranks) + 0.5


def _exchange(books: _Books, members: np.ndarray, allowed: float) -> None:
    """Moves some of the members from ranks that are ahead to ranks that are behind."""
    owner = books.rank[members]
    by_rank = members[np.argsort(owner, kind="stable")]
    edges = np.searchsorted(np.sort(owner), np.arange(len(books.ahead) + 1))
    stock = {r: list(by_rank[edges[r] : edges[r + 1]]) for r in range(len(books.ahead))}
    can_give = np.diff(edges) > 0
    while can_give.any():
        giver = int(np.where(can_give, books.ahead, -np.inf).argmax())
        receiver = int(books.ahead.argmin())
        gap = books.ahead[giver] - books.ahead[receiver]
        within = gap <= 2 * allowed and np.abs(books.ahead).max() <= allowed + 1e-9
        if within or gap <= 1 + 1e-9:
            return
        example = _pick(books, stock[giver])
        books.rank[example] = receiver
        books.split[books.cluster[example]] = True
        books.ahead[giver] -= 1
        books.ahead[receiver] += 1
        can_give[giver] = bool(stock[giver])


def _pick(books: _Books, stock: list[int]) -> int:
    """One to move, of a cluster that is split already where there is one."""
    for index, example in enumerate(stock):
        if books.split[books.cluster[example]]:
            return stock.pop(index)
    return stock.pop()
