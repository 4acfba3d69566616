"""What was selected: how much of the data it covers, how the mix changed, and its weights."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from formats.clusters import Clusters
from formats.data import Dataset
from formats.selection import Selection
from stages.inspect.mix import FILE
from stages.report import numbers
from stages.report.axis import Axis, percent
from stages.report.document import Block, Chart, Table, Text
from stages.report.svg import Plot, Rows, thinned

PAIRS = 200e6  # rows times dimensions up to which a curve that was not recorded is computed now
SHOWN = 30  # sources in a chart; the table has all
_BINS = 24


def coverage(clusters: Clusters, chosen: Selection) -> list[Block]:
    """The coverage curve with the fraction that was chosen.

    Raises:
        ArtifactError: the curve is not recorded, and the signatures to compute it from are not there.
    """
    found = chosen.header.stats.get("coverage") or _computed(clusters, chosen)
    if isinstance(found, str):
        return [Text(found)]
    fraction = chosen.header.stats["fraction"]
    across = [point["fraction"] for point in found["curve"]]
    kept = [point["kept"] for point in found["curve"]]
    at = float(np.interp(fraction, across, kept))
    x = Axis("rows selected", 0, 1, percent)
    plot = Plot(
        "How much of the data a selection covers", x, Axis("similarity kept", 0, 1.04, percent)
    )
    plot.line(across, kept, 1)
    plot.mark(fraction, f"{numbers.share(fraction)} selected, {numbers.share(at)} kept")
    plot.dots([fraction], [at], 2)
    needed = ", ".join(
        f"{100 * float(part):.0f} % by {numbers.share(rows)}"
        for part, rows in found["needed"].items()
    )
    return [
        Chart(
            plot.title,
            plot.svg(),
            (),
            "How near rows are to the nearest other selected row, as a share of what selecting all "
            f"reaches ({found['reachable']:.3f}). What keeps how much: {needed} of the rows.",
        )
    ]


def _computed(clusters: Clusters, chosen: Selection) -> dict[str, Any] | str:
    """The curve of the selection's own way to choose; or why it is not computed."""
    from stages.select import methods
    from stages.select.coverage import curve
    from stages.select.pool import read_pool
    from stages.select.settings import Settings

    params = chosen.header.params
    special = [n for n in ("target", "must_include", "exclude", "stratify") if params.get(n)]
    size = clusters.rows * clusters.column("centre").shape[0]
    again = "`cluster-cli select --fraction auto` records it"
    if special:
        return f"No coverage curve: it is not computed for selections with {', '.join(special)}; {again}."
    if size > PAIRS:
        return f"No coverage curve: {clusters.rows:,} rows are too many to compute it now; {again}."
    names = ("quota", "within", "trim", "seed", "min_per_cluster")
    settings = Settings(**{name: params[name] for name in names if name in params})
    pool = read_pool(clusters)
    choose = methods.find(params["method"]).prepare(clusters, pool, settings)
    return curve(clusters, pool, choose, None, 0.95, max(1, settings.min_per_cluster))


def mix_of_clusters(clusters: Clusters, chosen: Selection) -> Chart:
    """Every cluster's share of all rows, of the selected ones, and of their weight."""
    count = clusters.clusters
    before = clusters.size / max(1, clusters.size.sum())
    after = np.bincount(chosen.cluster, minlength=count) / len(chosen)
    weighed = np.bincount(chosen.cluster, chosen.weight, count) / chosen.weight.sum()
    x = Axis("cluster, by size", -0.5, count - 0.5, whole=True)
    y = Axis.of("share", before, after, weighed, zero=True, write=percent)
    plot = Plot("The mix of lessons, before and after", x, y)
    place = np.arange(count)
    plot.bars(place - 0.4, place + 0.4, before, 0)
    if count <= 60:
        plot.dots(place, after, 2)
        plot.dots(place, weighed, 1, "small")
    else:
        plot.line(*thinned(after), 2, "thin")
        plot.line(*thinned(weighed), 1, "thin")
    legend = [(0, "all rows"), (2, "selected rows"), (1, "selected rows by weight")]
    return Chart(plot.title, plot.svg(), legend, _in_words(before, after, weighed))


def _in_words(before: np.ndarray, after: np.ndarray, weighed: np.ndarray) -> str:
    """How far the mix moved: total variation distance, half the sum of differences."""
    moved, left = (0.5 * np.abs(part - before).sum() for part in (after, weighed))
    return (
        f"Counted by rows, {numbers.share(moved)} of the mix moved to other clusters; by weight "
        f"{numbers.share(left)}."
    )


def mix_of_sources(cards: dict[str, Any], dataset: Dataset, chosen: Selection) -> list[Block]:
    """The same for the values of the column that tells sources apart.

    Args:
        cards: of ``stages.inspect.cards``: the column, and its values in every cluster.
        dataset: what the selection chose from.
        chosen: the selection; rows without a value do not count.
    """
    by, whole, taken, weight = cards["mixed_by"], Counter[str](), Counter[str](), Counter[str]()
    for card in cards["clusters"]:
        for part in card["mix"]:
            whole[part["value"]] += part["rows"]
    for row, w in zip(chosen.row.tolist(), chosen.weight.tolist(), strict=True):
        if (value := _value(dataset, row, by)) is not None:
            taken[value] += 1
            weight[value] += w
    names = sorted(whole, key=lambda name: (-whole[name], name))
    parts = [(side, sum(side.values()) or 1) for side in (whole, taken, weight)]
    shares_S3 = np.array([[side[name] / total for side, total in parts] for name in names])
    rows = [
        (name, numbers.count(whole[name]), numbers.count(taken[name]), *map(numbers.share, three))
        for name, three in zip(names, shares_S3.tolist(), strict=True)
    ]
    head = (by, "rows", "selected", "of all rows", "of the selected", "by weight")
    return [_drawn(by, names[:SHOWN], shares_S3[:SHOWN]), Table(f"Mix by {by}", head, rows)]


def _drawn(by: str, names: list[str], shares_S3: np.ndarray) -> Chart:
    x = Axis.of("share", shares_S3, zero=True, write=percent)
    plot = Rows(f"The mix by {by}, before and after", names, x)
    plot.bars(np.zeros(len(names)), shares_S3[:, 0], 0)
    plot.dots(shares_S3[:, 1], 2)
    plot.dots(shares_S3[:, 2], 1)
    legend = [(0, "all rows"), (2, "selected rows"), (1, "selected rows by weight")]
    return Chart(plot.title, plot.svg(), legend)


def _value(dataset: Dataset, row: int, by: str) -> str | None:
    """As ``stages.inspect.mix`` reads it."""
    example = dataset[row]
    if by == FILE and FILE not in example.columns:
        return Path(example.file).name
    value = example.columns.get(by)
    return str(value) if isinstance(value, str | int | float) else None


def weights(chosen: Selection) -> list[Block]:
    """The histogram of loss weights, and how many equal examples they are worth."""
    weight_M = chosen.weight
    ess = float(weight_M.sum() ** 2 / (weight_M**2).sum())
    told = (
        f"{numbers.several(len(chosen), 'example')} count like {ess:,.1f} of equal weight "
        f"({numbers.share(ess / len(chosen))}); weights reach from {weight_M.min():.3f} to "
        f"{weight_M.max():.3f} and average {weight_M.mean():.3f}, the dotted line."
    )
    if weight_M.min() == weight_M.max():
        return [Text(f"All weights are {weight_M[0]:g}: every selected example counts the same.")]
    counts, edges = np.histogram(weight_M, bins=min(_BINS, 4 + len(chosen) // 4))
    x = Axis.of("loss weight", edges, zero=True)
    plot = Plot(
        "Weights of the selected examples", x, Axis.of("examples", counts, zero=True, whole=True)
    )
    plot.bars(edges[:-1], edges[1:], counts, 1)
    plot.mark(1.0, "")
    return [Chart(plot.title, plot.svg(), (), told)]
