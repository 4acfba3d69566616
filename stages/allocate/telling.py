"""What is said about a plan, on screen and in its manifest."""

from __future__ import annotations

from typing import Any

import numpy as np

from formats.selection import Selection
from stages.allocate.apart import unavoidable_meetings
from stages.allocate.deal import Deal
from stages.allocate.report import figures, in_signature_space
from stages.allocate.shape import Shape
from stages.allocate.strategies import baseline
from stages.reporting import Reporter

_FAR = 1.25  # times a shuffle's variance of a step that are worth a word


def statistics(
    chosen: Selection,
    shape: Shape,
    deals: list[Deal],
    budget: int,
    seed: int,
    known: np.ndarray | None,
) -> dict[str, Any]:
    """The manifest's ``stats``: figures of the first epoch, and of the usual shuffle.

    Args:
        chosen: the selection.
        shape: the plan's shape.
        deals: one per epoch.
        budget: padded tokens of a micro-batch, 0 without.
        seed: of the shuffle.
        known: (M, D) signatures, to measure with; None leaves that out.
    """
    deal = deals[0]
    by_chance = baseline(shape, chosen.tokens, budget, seed)
    found = {
        name: figures(some, chosen.cluster, chosen.tokens)
        for name, some in (("plan", deal), ("random", by_chance))
    }
    if known is not None:
        found["plan"] |= in_signature_space(deal, known, chosen.weight)
        found["random"] |= in_signature_space(by_chance, known, chosen.weight)
    steps = deal.rows.shape[0]
    stats = {
        "examples": shape.examples,
        "clusters": len(np.unique(chosen.cluster)),
        **_ownership(deal, chosen.cluster),
        "steps": steps,
        "empty_places": 0 if budget else steps * shape.batch - shape.examples,
        **found,
    }
    if budget:
        stats |= {
            "rows_per_micro_batch": round(shape.examples / deal.rows.size, 3),
            "most_rows": max(int(each.rows.max()) for each in deals),
            "longer_than_budget": int((chosen.tokens > budget).sum()),
        }
    return stats


def _ownership(deal: Deal, cluster: np.ndarray) -> dict[str, Any]:
    """Clusters that more than one rank holds, and the share of examples away from their main rank."""
    ranks = deal.rows.shape[2]
    keys = cluster[deal.example].astype(np.int64) * ranks + deal.step_rank()[1]
    pairs, rows = np.unique(keys, return_counts=True)
    _, first, owners = np.unique(pairs // ranks, return_index=True, return_counts=True)
    at_home = np.maximum.reduceat(rows, first).sum()
    return {
        "split_clusters": int((owners > 1).sum()),
        "away": round(1 - float(at_home / rows.sum()), 6),
    }


def report(stats: dict[str, Any], shape: Shape, reporter: Reporter) -> None:
    """The figures, each beside those of the usual shuffle."""
    ours, chance = stats["plan"], stats["random"]
    about = "about " if "most_rows" in stats else ""
    batch = round(stats["examples"] / stats["steps"]) if about else shape.batch
    ranks = f"{shape.ranks} ranks" if shape.ranks > 1 else "one rank"
    reporter.message(
        f"{shape.examples:,} examples over {ranks}: {stats['steps']:,} steps of "
        f"{about}{batch} an epoch"
    )
    alone = ("clusters_per_batch", "batch_variance")  # the others compare ranks
    for name, title in (
        ("shared_cluster", "two ranks on one cluster in a step"),
        ("padded_ratio_mean", "tokens of the fullest rank over the mean"),
        ("waiting", "predicted waiting"),
        ("clusters_per_batch", "clusters in a step"),
        ("rank_cosine", "cosine between ranks in a step, what all share aside"),
        ("batch_variance", "variance of a batch's mean signature"),
    ):
        if name not in ours or (shape.ranks == 1 and name not in alone):
            continue
        number = "{:.2f}" if name == "clusters_per_batch" else "{:.4f}"
        reporter.message(
            f"{title}: {number.format(ours[name])} (random: {number.format(chance[name])})"
        )


def _warn_of_lengths(stats: dict[str, Any], strategy: str, reporter: Reporter) -> None:
    """A step of one micro-batch has rows of one length, which may teach alike; known where it was
    measured in signature space.
    """
    ours, chance = (stats[name].get("batch_variance", 0.0) for name in ("plan", "random"))
    if ours > _FAR * chance > 0:
        other = "" if strategy == "balanced" else ", or --strategy balanced"
        reporter.warn(
            f"steps resemble the selection less than a shuffle's (variance {ours / chance:.1f} times), "
            "because each holds rows of one length; smaller micro-batches with --accumulation 4 mix "
            f"lengths{other}"
        )


def warn(
    stats: dict[str, Any],
    chosen: Selection,
    shape: Shape,
    strategy: str,
    budget: int,
    reporter: Reporter,
) -> None:
    """Says where a wish could not be granted, and why."""
    if longer := stats.get("longer_than_budget"):
        reporter.warn(
            f"{longer} of {shape.examples:,} examples are longer than {budget:,} tokens, up to "
            f"{int(chosen.tokens.max()):,}; each has a micro-batch of its own"
        )
    if strategy != "random" and shape.accumulation == 1:
        _warn_of_lengths(stats, strategy, reporter)
    if strategy not in ("disjoint", "balanced") or not stats["plan"]["shared_cluster"]:
        return
    names, sizes = np.unique(chosen.cluster, return_counts=True)
    most, largest = -(-shape.examples // shape.ranks), int(sizes.argmax())
    if shape.ranks > len(names):
        reporter.warn(
            f"{shape.ranks} ranks share {len(names)} clusters: {stats['split_clusters']} are "
            "split, and ranks meet on the same cluster"
        )
    elif sizes[largest] > most:
        reporter.warn(
            f"cluster {names[largest]} has {sizes[largest]:,} of {shape.examples:,} examples, more "
            f"than the {most:,} of a rank: ranks must meet on it in "
            f"{unavoidable_meetings(chosen.cluster, shape):.4f} of the cases"
        )
    else:
        reporter.warn(
            f"{len(names)} clusters over {shape.ranks} ranks could not be kept apart in all of "
            f"{stats['steps']:,} steps; fewer ranks or smaller batches can"
        )
