"""What is said of a selection: figures for its header, messages and warnings."""

from __future__ import annotations

from typing import Any

import numpy as np

from formats.clusters import Clusters
from stages.reporting import Reporter
from stages.select.pool import Pool
from stages.select.weights import effective

_MOVED = 0.1  # part of the weight on other clusters than in the data, from which on it is said
_LOW = 0.6  # effective sample size, as a fraction, below which weights cost more than they should


def figures(
    source: Clusters, pool: Pool, chosen: np.ndarray, weight_M: np.ndarray
) -> dict[str, Any]:
    """The header's ``stats``. ``clusterable`` are the rows that could be selected: clustered, not
    excluded; ``fraction`` is one of them.
    """
    taken = int(pool.tokens[chosen].sum(dtype=np.int64))
    total = int(pool.tokens.sum(dtype=np.int64))
    found = {
        "rows": source.rows,
        "clusterable": len(pool),
        "selected": len(chosen),
        "fraction": round(len(chosen) / len(pool), 6),
        "repeated": int((~pool.distinct[chosen]).sum()),
        "clusters": int((pool.size > 0).sum()),
        "clusters_represented": len(np.unique(pool.label[chosen])),
        **effective(weight_M),
        "moved": _moved(pool, chosen, weight_M),
        "largest_weight": round(float(weight_M.max()), 6),
        "tokens": taken,
        "tokens_total": total,
        "tokens_fraction": round(taken / total, 6),
    }
    if pool.must.any():
        found["must_include"] = int(pool.must.sum())
    if pool.excluded:
        found["excluded"] = pool.excluded
    if pool.strata != ("",):
        found["strata"] = _strata(pool, chosen, weight_M)
    return found


def _moved(pool: Pool, chosen: np.ndarray, weight_M: np.ndarray) -> float:
    """The part of the weight that is on other clusters than in the data: total variation distance."""
    size_K = pool.count().sum(axis=0)
    weight_K = np.bincount(pool.label[chosen], weights=weight_M, minlength=len(size_K))
    return round(float(np.abs(weight_K / weight_M.sum() - size_K / len(pool)).sum() / 2), 6)


def _strata(pool: Pool, chosen: np.ndarray, weight_M: np.ndarray) -> dict[str, Any]:
    """Of every stratum its share of the rows, the examples selected, and their share by weight."""
    rows_S, taken_S = pool.count().sum(axis=1), pool.count(chosen).sum(axis=1)
    weight_S = np.bincount(pool.stratum[chosen], weights=weight_M, minlength=len(pool.strata))
    each = zip(rows_S / len(pool), taken_S, weight_S / weight_M.sum(), strict=True)
    return {
        name: {"share": round(float(s), 6), "selected": int(n), "weight": round(float(w), 6)}
        for name, (s, n, w) in zip(pool.strata, each, strict=True)
    }


def report(stats: dict[str, Any], can_weight: bool, reporter: Reporter) -> None:
    """Says what was selected, and warns of what may surprise.

    Args:
        stats: the header's.
        can_weight: the method's clusters can be weighted back to their shares.
        reporter: hears it.
    """
    missing = stats["clusters"] - stats["clusters_represented"]
    if "target" in stats:
        aim = stats["target"]
        reporter.message(
            f"aimed at {aim['examples']:,} wanted examples in {aim['clusters']} of "
            f"{stats['clusters']} clusters: mean alignment {aim['alignment']:.3f}, of all rows "
            f"{aim['alignment_of_all']:.3f}; the mix is changed on purpose, all weights are 1"
        )
    elif missing:
        reporter.warn(
            f"{missing} of {stats['clusters']} clusters are not represented: the budget of "
            f"{stats['selected']} examples is too small, or the method does not look at clusters"
        )
    if stats["ess_fraction"] < _LOW:
        reporter.warn(
            f"the weights are very unequal: {stats['selected']} examples count like "
            f"{stats['effective_sample_size']:.0f} ({stats['ess_fraction']:.0%}); "
            "without --weights, or with --quota proportional, they are equal"
        )
    if can_weight and stats["moved"] >= _MOVED:
        reporter.message(
            f"the mix changes: {stats['moved']:.0%} of the weight is on other clusters than in the data, "
            "as the quotas ask; --weights restores it"
        )
    reporter.message(
        f"selected {stats['selected']:,} of {stats['clusterable']:,} rows "
        f"({stats['fraction']:.1%}, {stats['tokens_fraction']:.1%} of the tokens) from "
        f"{stats['clusters_represented']} of {stats['clusters']} clusters; effective sample size "
        f"{stats['effective_sample_size']:,.0f}"
    )
