"""When each rank takes its examples.

All ranks sort their examples by length; what stands at the same place on every rank is taken at the
same time, so that no rank waits. Which places come when is shuffled, in strata, so that every stretch
of an epoch sees all lengths. Among examples of one length class (within 1 %) the clusters are spread
evenly over time.
"""

from __future__ import annotations

import numpy as np

from stages.allocate.shape import Shape

_STRATA = 32  # length classes that any so many consecutive micro-batches of a rank run through
_CLASS = 1.01  # ratio of lengths inside which examples may be exchanged freely
_GOLDEN = 0.6180339887498949  # its multiples, modulo 1, fill the interval evenly (Kronecker)


def place(
    rank: np.ndarray,
    cluster: np.ndarray,
    tokens: np.ndarray,
    shape: Shape,
    random: np.random.Generator,
) -> np.ndarray:
    """Unit of each example, (M) int64.

    Args:
        rank: (M) owner of each example; ranks own as many as ``shape.rank_rows`` says.
        cluster: (M).
        tokens: (M).
        shape: the plan's shape.
        random: other states give other orders.
    """
    shuffle = random.permutation(len(rank))  # equal lengths stand in another order each time
    unit_of_level = shuffle_in_strata(shape.units, random)
    rows_UR = shape.unit_rows()[unit_of_level]  # by level, the longest first
    by_length = _sorted(shuffle, rank, tokens.max() - tokens)
    level = np.concatenate(
        [np.repeat(np.arange(shape.units), rows_UR[:, r]) for r in range(shape.ranks)]
    )
    length_class = _classes(tokens[by_length], level, shape.units)[level]
    wish = _even_times(cluster, tokens, shuffle, random)[by_length]
    # Two orders of the same places: by the time they come, and by the time examples ask for.
    owner, everyone = rank[by_length], np.arange(len(rank))
    slots = _sorted(everyone, owner, length_class, unit_of_level[level])
    asked = _sorted(everyone, owner, length_class, (wish * 2**24).astype(np.int64))
    unit = np.empty(len(rank), dtype=np.int64)
    unit[by_length[asked]] = unit_of_level[level[slots]]
    return unit


def _sorted(order: np.ndarray, *keys: np.ndarray) -> np.ndarray:
    """Sorts by several non-negative integer keys, the first one first; equal ones stay as in ``order``.

    One sort of a joint key: several times faster than a sort for each of them.
    """
    joint = np.zeros(len(order), dtype=np.int64)
    for key in keys:
        joint *= int(key.max(initial=0)) + 1
        joint += key
    return order[np.argsort(joint[order], kind="stable")]


def shuffle_in_strata(units: int, random: np.random.Generator) -> np.ndarray:
    """(U) unit of each level: a permutation in which every few consecutive units see all lengths.

    Steps that hold several of them have nearly the same mix of lengths, and so of gradient lengths:
    left to chance, that would be most of the variance between steps.
    """
    strata = max(1, min(_STRATA, units // 2))
    level = np.arange(units)
    stratum = level * strata // units
    size = np.bincount(stratum, minlength=strata)
    order = np.lexsort((random.random(units), stratum))
    place = np.empty(units)
    place[order] = level - np.repeat(np.cumsum(size) - size, size)
    time = (place + (stratum * _GOLDEN + random.random()) % 1) / size[stratum]
    unit = np.empty(units, dtype=np.int64)
    unit[np.argsort(time, kind="stable")] = level
    return unit


def _classes(tokens: np.ndarray, level: np.ndarray, units: int) -> np.ndarray:
    """(U) class of each level: levels whose mean length agrees within ``_CLASS``."""
    rows = np.bincount(level, minlength=units)
    mean = np.bincount(level, weights=tokens, minlength=units) / np.maximum(rows, 1)
    # Means can rise by a hair where ranks differ by one row; classes must be ranges of levels.
    mean = np.minimum.accumulate(np.where(rows > 0, mean, np.inf))
    mean = np.where(np.isfinite(mean), mean, mean[np.isfinite(mean)].max())
    ratio = np.log(mean.max() / np.maximum(mean, 1))
    return np.floor(np.maximum(ratio, 0) / np.log(_CLASS)).astype(np.int64)


def _even_times(
    cluster: np.ndarray, tokens: np.ndarray, shuffle: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """(M) times in [0, 1): each cluster's examples, and any stretch of their lengths, evenly spread."""
    size = np.bincount(cluster)
    order = _sorted(shuffle, cluster, tokens)
    place = np.empty(len(cluster))
    place[order] = np.arange(len(cluster)) - np.repeat(np.cumsum(size) - size, size)
    return (place * _GOLDEN + random.random(len(size))[cluster]) % 1
