"""Orders in which each next example is the best addition to those before it.

Each is a generator of indices; ties go to the lowest index. ``begin`` are indices that come first, as
they are given. Shapes: n examples, D numbers.

The last bits of a matrix product depend on the number of threads. So sums that are compared with each
other are made without one, or in float64 and rounded to what float32 rows can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest

import numpy as np


def k_centre(unit_nD: np.ndarray, begin: Sequence[int] = ()) -> Iterator[int]:
    """The example farthest (in cosine) from all chosen so far: farthest-first traversal, which covers
    within twice the best radius (Gonzalez 1985; for training data Sener and Savarese 2018).

    Begins with the example nearest to the mean.
    """
    mean_D = unit_nD.mean(axis=0, dtype=np.float64).astype(np.float32)
    nearest_n = -_dots(unit_nD, mean_D)
    for step in range(len(unit_nD)):
        chosen = begin[step] if step < len(begin) else int(nearest_n.argmin())
        yield chosen
        if step == 0:
            nearest_n[:] = -np.inf
        np.maximum(nearest_n, _dots(unit_nD, unit_nD[chosen]), out=nearest_n)
        nearest_n[chosen] = np.inf


def facility(unit_nD: np.ndarray, begin: Sequence[int] = ()) -> Iterator[int]:
    """The example that adds most to the sum over all examples of their similarity to the nearest
    chosen one: greedy facility location (Nemhauser et al. 1978; CRAIG, Mirzasoleiman et al. 2020).
    """
    similarity_nn = _similarities(unit_nD)
    covered_n = np.zeros(len(unit_nD), dtype=np.float32)
    open_n = np.ones(len(unit_nD), dtype=bool)
    for step in range(len(unit_nD)):
        if step < len(begin):
            chosen = begin[step]
        else:
            gain_n = np.maximum(similarity_nn - covered_n[:, None], 0).sum(axis=0, dtype=np.float64)
            chosen = int(np.where(open_n, gain_n.round(6), -1).argmax())
        yield chosen
        open_n[chosen] = False
        np.maximum(covered_n, similarity_nn[:, chosen], out=covered_n)


def matching_pursuit(gradient_nD: np.ndarray, begin: Sequence[int] = ()) -> Iterator[int]:
    """The example whose gradient explains most of what is left of the mean gradient: orthogonal
    matching pursuit (Pati et al. 1993), as in GRAD-MATCH (Killamsetty et al. 2021) and, inside
    gradient clusters, TAGCOS (Zhang et al. 2024).
    """
    gradient_nD = gradient_nD.astype(np.float64)
    gram_nn = gradient_nD @ gradient_nD.T
    target_n = gram_nn.mean(axis=1)  # each gradient times the mean gradient
    whole = np.sqrt(max(float(target_n.mean()), 1e-30))  # length of the mean gradient
    length_n = np.sqrt(np.maximum(np.diag(gram_nn), 1e-30))
    ridge = 1e-9 * float(np.diag(gram_nn).mean())
    left_n = target_n.copy()
    chosen: list[int] = []
    open_n = np.ones(len(gradient_nD), dtype=bool)
    for step in range(len(gradient_nD)):
        score_n = np.round(np.abs(left_n) / length_n / whole, 6)
        best = int(np.where(open_n, score_n, -1).argmax())
        chosen.append(begin[step] if step < len(begin) else best)
        yield chosen[-1]
        open_n[chosen[-1]] = False
        inside = gram_nn[np.ix_(chosen, chosen)] + ridge * np.eye(len(chosen))
        weight = np.linalg.solve(inside, target_n[chosen])
        left_n = target_n - gram_nn[:, chosen] @ weight


def _dots(unit_nD: np.ndarray, unit_D: np.ndarray) -> np.ndarray:
    """(n) float32, each row's sum made in the same order whatever the number of threads."""
    return np.einsum("nd,d->n", unit_nD, unit_D)


def _similarities(unit_nD: np.ndarray) -> np.ndarray:
    """(n, n) float32 from 0 to 1."""
    rows_nD = unit_nD.astype(np.float64)
    similarity_nn = np.empty((len(rows_nD), len(rows_nD)), dtype=np.float32)
    for start in range(0, len(rows_nD), 1024):
        part = slice(start, start + 1024)
        similarity_nn[part] = ((1 + rows_nD[part] @ rows_nD.T) / 2).round(7)
    return similarity_nn


ORDERS = {"diverse": k_centre, "facility": facility, "pursuit": matching_pursuit}


def by_turns(
    order: str, unit_nD: np.ndarray, must_n: np.ndarray, key_n: np.ndarray, most: int
) -> Iterator[int]:
    """An order over more examples than it can look at together.

    They are divided at random into parts as equal as can be, and parts give one example each by turns.
    What a part gives is spread over that part, and so are all together over everything, if less evenly.

    Args:
        order: of ``ORDERS``.
        unit_nD: what it looks at.
        must_n: bool, come first.
        key_n: unique numbers that say how to divide.
        most: examples in a part.
    """
    count = -(-len(unit_nD) // most)
    whole = np.arange(len(unit_nD))
    parts = np.array_split(np.argsort(key_n), count) if count > 1 else [whole][:count]
    begin = [np.flatnonzero(must_n[part]).tolist() for part in parts]
    streams = [
        map(part.__getitem__, ORDERS[order](unit_nD[part], first))
        for part, first in zip(parts, begin, strict=True)
    ]
    for stream, first in zip(streams, begin, strict=True):
        yield from islice(stream, len(first))
    for turn in zip_longest(*streams):
        yield from (int(at) for at in turn if at is not None)
