"""A finished map in a few lines for people."""

from __future__ import annotations

from typing import Any

from stages.cluster.reuse import listed
from stages.reporting import Reporter


def report(stats: dict[str, Any], reporter: Reporter) -> None:
    """Says what the statistics of a map's header say."""
    if "auto" in stats:
        reporter.message(stats["auto"]["reason"])
    if "wanted" in stats:
        reporter.message(
            f"{stats['clusters']} clusters instead of {stats['wanted']}: the others were empty"
        )
    if stats["not_clustered"]:
        counts = ", ".join(f"{n:,} {name}" for name, n in stats["not_clustered"].items())
        missing = stats["rows"] - stats["clusterable"]
        reporter.warn(f"{missing:,} of {stats['rows']:,} rows are not clustered ({counts})")
    reporter.message(
        f"{stats['clusterable']:,} rows ({stats['distinct']:,} distinct) in {stats['clusters']} "
        f"clusters of {stats['smallest']:,} to {stats['largest']:,} rows; mean similarity "
        f"{stats['mean_similarity']:.3f}"
    )
    if "opened" in stats:
        reporter.message(f"{stats['opened']} new clusters were opened")
    if "drift" in stats:
        _report_drift(stats["drift"], reporter)


def _report_drift(found: dict[str, Any], reporter: Reporter) -> None:
    (reporter.warn if found["refit"] else reporter.message)(found["advice"])
    for name, words in (("grew", "at least doubled their share"), ("vanished", "are empty now")):
        if found[name]:
            reporter.message(f"clusters that {words}: {listed(found[name])}")
