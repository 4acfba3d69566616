"""Reading what is clustered: block by block, each rank its own blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from formats.signatures import Signatures
from stages.cluster.contents import Contents
from stages.cluster.team import Team

_CELLS = 1 << 25  # numbers in one part and its product with the centroids, 128 MiB of float32


def stream(
    signatures: Signatures,
    contents: Contents,
    team: Team,
    *,
    clusters: int = 0,
    advance: Callable[..., None] = lambda rows: None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The contents of this rank's blocks in parts: (indices (B), signatures (B, D) float32).

    Args:
        signatures: read one block at a time; block b belongs to rank b % ranks.
        contents: which rows carry a signature.
        team: this rank and the others.
        clusters: how many numbers per row the caller will compute from a part, to keep it small.
        advance: told how many of the dataset's rows are done, by all ranks together.
    """
    by_row = np.argsort(contents.row, kind="stable")
    ascending = contents.row[by_row]
    step = max(1, _CELLS // (clusters + signatures.dims))
    for block, first in enumerate(range(0, signatures.rows, signatures.block)):
        last = min(first + signatures.block, signatures.rows)
        low, high = np.searchsorted(ascending, (first, last))
        if team.owns(block) and low < high:
            block_BD = signatures.column("signature", slice(first, last))
            for start in range(low, high, step):
                chosen = slice(start, min(start + step, high))
                rows_BD = block_BD[ascending[chosen] - first].astype(np.float32)
                yield by_row[chosen], rows_BD
        advance(last - first)


def load(signatures: Signatures, contents: Contents, team: Team) -> np.ndarray:
    """The signatures of all the contents, (S, D) float32 in their order, on rank 0; (0, D) elsewhere.

    Each rank reads its own blocks and sends them to rank 0.
    """
    owner_S = contents.row // signatures.block % team.size
    counts = np.bincount(owner_S, minlength=team.size).tolist()
    mine_SD = np.empty((counts[team.rank], signatures.dims), dtype=np.float32)
    place_of = np.empty(len(contents), dtype=np.int64)
    place_of[owner_S == team.rank] = np.arange(counts[team.rank])
    for chosen, rows_BD in stream(signatures, contents, team):
        mine_SD[place_of[chosen]] = rows_BD
    parts = team.collect(mine_SD, counts)
    if team.size == 1 or team.rank:
        return mine_SD if team.size == 1 else mine_SD[:0]
    sample_SD = np.empty((len(contents), signatures.dims), dtype=np.float32)
    for rank, part in enumerate(parts):
        sample_SD[owner_S == rank] = part
    return sample_SD
