"""The lessons of a dataset: a map of its rows, the sizes of its clusters, and a card for each."""

from __future__ import annotations

from typing import Any

import numpy as np

from formats.clusters import Clusters
from formats.errors import ArtifactError
from formats.selection import Selection
from formats.signatures import Signatures
from stages.inspect.cards import cards
from stages.report import numbers
from stages.report.axis import Axis
from stages.report.document import Block, Card, Cards, Chart, Table, Text
from stages.report.svg import COLOURS, Plot

SAMPLE, SEED = 2_000, 0  # rows on the map, and what draws them
FIRST, LAST = 100, 20  # cards: of the largest clusters and of the smallest, where there are more
_MIXED = 3  # sources named on a card
FEW = 40  # up to so many clusters a card has three examples a side, beyond it one


def lessons(
    clusters: Clusters,
    found: dict[str, Any],
    signatures: Signatures | None,
    chosen: Selection | None,
    why: str,
) -> list[Block]:
    """Everything about the lessons.

    Args:
        clusters: the map.
        found: its cards, as ``look`` gives them.
        signatures: what it was made from, None where they are not there.
        chosen: the selection, None where it is not there.
        why: why there are no signatures.
    """
    taken_N = np.zeros(clusters.rows, dtype=bool)
    if chosen is not None:
        taken_N[chosen.row] = True
    blocks: list[Block] = []
    if signatures is None:
        blocks.append(Text(f"No map of the rows: {why}.", warning=True))
    elif (drawn := landscape(clusters, signatures, taken_N)) is not None:
        blocks.append(drawn)
    blocks.append(_sizes(clusters, taken_N))
    if missing := found["examples_missing"]:
        blocks.append(Text(f"The texts of the examples cannot be shown: {missing}.", warning=True))
    made = found["clusters"]
    return [*blocks, _cards(made, found["mixed_by"]), _table(made, clusters, taken_N)]


def look(clusters: Clusters, by: str | None) -> dict[str, Any]:
    """The cards of ``stages.inspect.cards``, with fewer examples where there are many.

    Raises:
        SettingError: no row has the column ``by``.
        DataError: ``by`` is given, but the data are not there.
    """
    return cards(clusters, 3 if clusters.clusters <= FEW else 1, by)


def project(clusters: Clusters, signatures: Signatures) -> tuple[np.ndarray, np.ndarray, float]:
    """A seeded sample of distinct rows in the plane of most variance (principal components).

    Returns:
        the rows (n) int64, ascending; their places (n, 2) float64; the share of variance the plane holds.

    Raises:
        ArtifactError: the signatures have another number of rows than the map.
    """
    from sklearn.decomposition import PCA

    if signatures.rows != clusters.rows:
        raise ArtifactError(
            f"{signatures.path} has {signatures.rows:,} rows, {clusters.path} {clusters.rows:,}"
        )
    rows = np.flatnonzero(clusters.distinct)
    if len(rows) > SAMPLE:
        rows = np.sort(np.random.default_rng(SEED).choice(rows, SAMPLE, replace=False))
    if len(rows) < 3:
        return rows, np.zeros((len(rows), 2)), 0.0
    unit_nD = _read(signatures, rows) - clusters.column("centre")
    length_n = np.linalg.norm(unit_nD, axis=1)
    unit_nD /= np.where(length_n > 0, length_n, 1)[:, None]
    plane = PCA(2, random_state=SEED)
    place_n2 = plane.fit_transform(unit_nD).astype(np.float64)
    held = float(np.nan_to_num(plane.explained_variance_ratio_.sum()))
    return rows, place_n2, held


def _read(signatures: Signatures, rows: np.ndarray) -> np.ndarray:
    """(n, D) float32 of ascending rows; only blocks that hold some are read."""
    found_nD = np.empty((len(rows), signatures.dims), dtype=np.float32)
    for block in np.unique(rows // signatures.block):
        start = int(block) * signatures.block
        part = slice(start, min(start + signatures.block, signatures.rows))
        low, high = np.searchsorted(rows, (part.start, part.stop))
        found_nD[low:high] = signatures.column("signature", part)[rows[low:high] - start]
    return found_nD


def landscape(clusters: Clusters, signatures: Signatures, taken_N: np.ndarray) -> Chart | None:
    """The map of rows: colours for the largest clusters, large dots for selected rows."""
    rows, place_n2, held = project(clusters, signatures)
    if not place_n2.any():
        return None
    label_n, taken_n = clusters.label[rows], taken_N[rows]
    x, y = (Axis.of("", place_n2[:, i], room=0.04) for i in (0, 1))
    plot = Plot("Map of the rows by what they teach", x, y, bare=True)
    coloured = min(COLOURS, clusters.clusters)
    for kind, part_n in (("faint", ~taken_n), ("dots", taken_n)):
        for colour in (0, *range(1, coloured + 1)):
            inside = part_n & (label_n == colour - 1 if colour else label_n >= coloured)
            plot.dots(place_n2[inside, 0], place_n2[inside, 1], colour, kind)
    for cluster in range(coloured):
        if (inside := label_n == cluster).any():
            x_middle, y_middle = np.median(place_n2[inside], axis=0).tolist()
            plot.label(x_middle, y_middle, str(cluster))
    legend = [(i + 1, f"cluster {i}") for i in range(coloured)]
    if clusters.clusters > coloured:
        legend.append((0, "the smaller ones"))
    size = "; large dots are selected" if taken_N.any() else ""
    return Chart(
        plot.title,
        plot.svg(),
        legend,
        f"{numbers.count(len(rows))} of {numbers.count(int(clusters.distinct.sum()))} distinct rows, "
        f"drawn with seed {SEED}{size}. Near one another: they move the model alike. The plane holds "
        f"{numbers.share(held)} of the variance of the signatures; the clusters were found in all of it.",
    )


def _sizes(clusters: Clusters, taken_N: np.ndarray) -> Chart:
    size_K = clusters.size
    label_N, count = clusters.label, clusters.clusters
    taken_K = np.bincount(label_N[taken_N & (label_N >= 0)], minlength=count)
    place = np.arange(count)
    x = Axis("cluster, by size", -0.5, count - 0.5, whole=True)
    plot = Plot("Rows in each cluster", x, Axis.of("rows", size_K, zero=True, whole=True))
    plot.bars(place - 0.4, place + 0.4, size_K, 0)
    legend = [(0, "all rows")]
    if taken_N.any():
        plot.bars(place - 0.4, place + 0.4, taken_K, 1)
        legend.append((1, "selected"))
    return Chart(plot.title, plot.svg(), legend)


def _cards(made: list[dict[str, Any]], by: str | None) -> Cards:
    shown, note = made, ""
    if len(made) > FIRST + LAST:
        shown = made[:FIRST] + made[-LAST:]
        note = (
            f"The {FIRST} largest and the {LAST} smallest of {len(made):,} clusters; `cluster-cli inspect` "
            "shows the others."
        )
    note = (
        note or "Typical rows are nearest to their cluster's middle, unusual ones farthest from it."
    )
    return Cards("What each cluster holds", [_card(card, by) for card in shown], note)


def _card(card: dict[str, Any], by: str | None) -> Card:
    loss = "" if card["mean_loss"] is None else f" · mean loss {card['mean_loss']:.3f}"
    lines = []
    for name in ("typical", "unusual"):
        texts = [example["text"] for example in card[name] if example["text"]]
        lines += [(name if i == 0 else "", text) for i, text in enumerate(texts)]
    mix = ", ".join(
        f"{part['value']} {numbers.share(part['share'])}" for part in card["mix"][:_MIXED]
    )
    if by and mix:
        lines.append((by, mix + (" …" if len(card["mix"]) > _MIXED else "")))
    facts = f"{numbers.several(card['size'], 'row')} · {numbers.share(card['share'])}{loss}"
    return Card(f"Cluster {card['cluster']}", facts, lines, card["share"])


def _table(made: list[dict[str, Any]], clusters: Clusters, taken_N: np.ndarray) -> Table:
    label_N = clusters.label
    taken_K = np.bincount(label_N[taken_N & (label_N >= 0)], minlength=clusters.clusters)
    rows = [
        (
            str(card["cluster"]),
            numbers.count(card["size"]),
            numbers.share(card["share"]),
            numbers.count(card["tokens"]),
            numbers.count(taken_K[card["cluster"]]),
            numbers.number(card["mean_similarity"]),
            numbers.number(card["mean_loss"]),
        )
        for card in made
    ]
    names = ("cluster", "rows", "share", "tokens", "selected", "similarity", "loss")
    note = "Similarity: mean cosine to the cluster's middle. Loss: mean over its distinct rows."
    return Table("All clusters", names, rows, 1, note)
