"""Which rank owns which example.

``disjoint``: whole clusters go to ranks so that ranks get equal row counts and, as far as whole
clusters allow, equal distributions of length: ranks whose sorted lengths agree can be matched step by
step. The largest cluster is placed first, on the rank that needs its lengths most (LPT, Graham 1969),
then pairs of ranks swap clusters while that helps. What is still unequal in row counts is evened out
by splitting clusters, at most one for each rank that has too many rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.allocate.shape import Shape

_EDGES = 24  # lengths at which the distributions of two ranks are compared
_ROW_WEIGHT = 8.0  # equal row counts matter more than any one of these lengths
_PAIRS = 20_000  # pairs of ranks that may try to swap, at most
_PARTNERS = 128  # clusters of a rank looked at in one try


def interleaved(
    cluster: np.ndarray, tokens: np.ndarray, shape: Shape, random: np.random.Generator
) -> np.ndarray:
    """Rank of each example, (M) int32: every cluster dealt evenly, neighbours in length to different
    ranks.
    """
    order = np.lexsort((random.random(len(cluster)), tokens, cluster))
    groups = -(-len(order) // shape.ranks)
    deal = random.permuted(np.tile(np.arange(shape.ranks, dtype=np.int32), (groups, 1)), axis=1)
    left = len(order) % shape.ranks
    if left:  # the last group holds the ranks that own one row more
        deal[-1, :left] = random.permutation(left)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = deal.ravel()[: len(order)]
    return rank


def disjoint(
    cluster: np.ndarray, tokens: np.ndarray, shape: Shape, random: np.random.Generator
) -> np.ndarray:
    """Rank of each example, (M) int32: every cluster on one rank, except those that must be split.

    Args:
        cluster: (M) cluster of each example.
        tokens: (M) length of each example.
        shape: ranks and their row counts.
        random: breaks ties, and picks the pairs that try to swap.
    """
    pieces = _pieces(cluster, tokens, int(shape.rank_rows()[-1]))
    feature_CE = _features(pieces, tokens)
    rank_of_piece = _place(feature_CE, shape.ranks)
    _swap(feature_CE, rank_of_piece, shape.ranks, random)
    rank = rank_of_piece[pieces.of_example].astype(np.int32)
    _even_out(rank, cluster, tokens, shape)
    return rank


@dataclass(frozen=True)
class _Pieces:
    """Clusters, or parts of those that are larger than a rank.

    Attributes:
        of_example: (M) int64, piece of each example.
        count: number of pieces.
    """

    of_example: np.ndarray
    count: int


def _pieces(cluster: np.ndarray, tokens: np.ndarray, most: int) -> _Pieces:
    """Cuts clusters larger than ``most`` into equal parts of alike lengths."""
    _, dense = np.unique(cluster, return_inverse=True)
    size = np.bincount(dense)
    parts = np.maximum(1, -(-size // max(most, 1)))
    first_piece = np.cumsum(parts) - parts
    order = np.lexsort((tokens, dense))
    place = np.arange(len(dense)) - np.repeat(np.cumsum(size) - size, size)
    of_example = np.empty(len(dense), dtype=np.int64)
    of_example[order] = first_piece[dense[order]] + place % parts[dense[order]]
    return _Pieces(of_example, int(parts.sum()))


def _features(pieces: _Pieces, tokens: np.ndarray) -> np.ndarray:
    """(C, E) float64: rows of each piece, then its rows longer than each of E - 1 lengths.

    The lengths are equally spaced in logarithm, so a difference between two ranks costs alike
    everywhere: it shifts the match by that many rows, over that ratio of lengths.
    """
    low, high = np.quantile(tokens, [0.005, 0.995])
    edges = np.geomspace(max(low, 1), max(high, low + 1, 2), _EDGES)
    bin_M = np.searchsorted(edges, tokens, side="left")
    table = np.bincount(
        pieces.of_example * (_EDGES + 1) + bin_M, minlength=pieces.count * (_EDGES + 1)
    )
    longer_CE = (
        table.reshape(pieces.count, _EDGES + 1)[:, ::-1].cumsum(axis=1)[:, ::-1].astype(float)
    )
    longer_CE[:, 0] *= np.sqrt(_ROW_WEIGHT)
    return longer_CE


def _place(feature_CE: np.ndarray, ranks: int) -> np.ndarray:
    """Largest piece first, each on the rank whose distribution it improves most."""
    load_RE = np.tile(-feature_CE.sum(axis=0) / ranks, (ranks, 1))  # load minus what it should be
    rank_C = np.empty(len(feature_CE), dtype=np.int64)
    for piece in np.argsort(-feature_CE[:, 0], kind="stable"):
        # Growth of the squared distance, up to what is the same for all ranks.
        rank_C[piece] = best = int((load_RE @ feature_CE[piece]).argmin())
        load_RE[best] += feature_CE[piece]
    return rank_C


def _swap(
    feature_CE: np.ndarray, rank_C: np.ndarray, ranks: int, random: np.random.Generator
) -> None:
    """Swaps pieces between pairs of ranks, or moves one, while the squared distances shrink."""
    if ranks < 2 or len(feature_CE) < 2:
        return
    owned = [np.flatnonzero(rank_C == rank).tolist() for rank in range(ranks)]
    load_RE = np.zeros((ranks, feature_CE.shape[1]))
    np.add.at(load_RE, rank_C, feature_CE)
    load_RE -= feature_CE.sum(axis=0) / ranks
    idle = 0
    for _ in range(max(1, _PAIRS // (ranks // 2))):
        order = random.permutation(ranks)
        changed = False
        for left, right in zip(order[0::2], order[1::2], strict=False):
            changed |= _improve(feature_CE, owned, load_RE, int(left), int(right), random)
        idle = 0 if changed else idle + 1
        if idle > 2 * ranks:
            break
    for rank, pieces in enumerate(owned):
        rank_C[pieces] = rank


def _improve(
    feature_CE: np.ndarray,
    owned: list[list[int]],
    load_RE: np.ndarray,
    left: int,
    right: int,
    random: np.random.Generator,
) -> bool:
    """Makes the best exchange between two ranks; False when none helps."""
    ours, theirs = (_some(owned[rank], random) for rank in (left, right))
    zero = np.zeros((1, feature_CE.shape[1]))
    give_GE = np.concatenate((feature_CE[ours], zero))  # the last one: give nothing
    take_TE = np.concatenate((feature_CE[theirs], zero))
    # With d = give - take the squared distances change by 2 (right - left) d + 2 |d|^2.
    gap_E = load_RE[right] - load_RE[left]
    given_G, taken_T = give_GE @ gap_E, take_TE @ gap_E
    square_GT = (
        (give_GE**2).sum(axis=1)[:, None]
        + (take_TE**2).sum(axis=1)[None, :]
        - 2 * give_GE @ take_TE.T
    )
    change_GT = given_G[:, None] - taken_T[None, :] + square_GT
    give, take = np.unravel_index(int(change_GT.argmin()), change_GT.shape)
    if change_GT[give, take] >= -1e-9 * (1 + square_GT.max()):
        return False
    moved_E = give_GE[give] - take_TE[take]
    load_RE[left] -= moved_E
    load_RE[right] += moved_E
    if give < len(ours):
        owned[left].remove(ours[give])
        owned[right].append(ours[give])
    if take < len(theirs):
        owned[right].remove(theirs[take])
        owned[left].append(theirs[take])
    return True


def _some(pieces: list[int], random: np.random.Generator) -> list[int]:
    if len(pieces) <= _PARTNERS:
        return list(pieces)
    return [pieces[i] for i in random.choice(len(pieces), _PARTNERS, replace=False)]


def _even_out(rank: np.ndarray, cluster: np.ndarray, tokens: np.ndarray, shape: Shape) -> None:
    """Moves rows from ranks with too many to ranks with too few, in place."""
    surplus = np.bincount(rank, minlength=shape.ranks) - shape.rank_rows()
    receivers = [int(r) for r in np.argsort(surplus, kind="stable") if surplus[r] < 0]
    order = np.argsort(rank, kind="stable")
    edges = np.searchsorted(rank[order], np.arange(shape.ranks + 1))
    for giver in np.argsort(-surplus, kind="stable"):
        if surplus[giver] <= 0:
            break
        leaving = _leaving(order[edges[giver] : edges[giver + 1]], cluster, tokens, surplus[giver])
        start = 0
        while start < len(leaving):
            receiver = receivers[0]
            moved = leaving[start : start - surplus[receiver]]
            rank[moved] = receiver
            surplus[receiver] += len(moved)
            start += len(moved)
            if surplus[receiver] == 0:
                receivers.pop(0)


def _leaving(
    members: np.ndarray, cluster: np.ndarray, tokens: np.ndarray, count: int
) -> np.ndarray:
    """``count`` of a rank's examples, from as few clusters as hold them, of alike lengths."""
    _, dense = np.unique(cluster[members], return_inverse=True)
    by_size = np.argsort(-np.bincount(dense), kind="stable")
    chosen: list[np.ndarray] = []
    for name in by_size:
        own = members[dense == name]
        own = own[np.argsort(tokens[own], kind="stable")]
        spread = np.linspace(0, len(own), min(count, len(own)), endpoint=False).astype(int)
        chosen.append(own[spread])
        count -= len(spread)
        if not count:
            break
    return np.concatenate(chosen)
