"""How much is enough, as ``compare`` has measured it: the fraction "auto" with ``--curve``.

Signatures tell how distinct the data are, not how many of them a model has to see. A comparison at several
fractions does: trained on the user's data, judged on the user's dev rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from formats.comparison import Comparison, interval
from formats.errors import ArtifactError, SettingError

# What makes two selections the same way to choose, however much is chosen.
RULES = ("method", "quota", "within", "trim", "weights", "min_per_cluster", "stratify", "target")


def rules(params: Mapping[str, Any]) -> dict[str, Any]:
    """Of a selection's parameters those that say how it is chosen; what is not set is left out."""
    return {name: params[name] for name in RULES if params.get(name) is not None}


def enough(path: Path, params: Mapping[str, Any]) -> dict[str, Any]:
    """The fraction from which on a learning curve keeps nearly all of the quality.

    Args:
        path: a comparison's folder or file.
        params: of the selection. The curve is that of the arm with the name of its method; for the method
            ``cluster`` that is the chain as its file had it.

    Returns:
        ``fraction``; ``share`` of full quality; ``low`` and ``high``, its 95 % interval over seeds (None
        with one seed); ``rows`` it was measured on; ``reason``: it in words.

    Raises:
        ArtifactMissingError, ArtifactError: it cannot be read, or has no curve of this arm.
        SettingError: the curve is of another way to choose.
    """
    found = Comparison.open(path)
    curves = {curve["arm"]: curve for curve in found.curves}
    if not curves:
        raise ArtifactError(
            f"{found.path} has no learning curve",
            fix="compare at several fractions: cluster-cli compare --fraction 0.1 --fraction 0.31 ...",
        )
    arm = params["method"]
    if arm not in curves:
        raise ArtifactError(
            f"{found.path} has no curve of the arm {arm}; it has {', '.join(curves)}",
            fix=f"compare that arm as well, or give --method {next(iter(curves))}",
        )
    curve = curves[arm]
    _check_rules(found.path, curve, rules(params))
    needed, share, rows = curve["needed"], curve["share"], curve["rows"]
    fraction = round(min(1.0, needed["mean"]), 4)
    spread = interval(needed) and f", {interval(needed)} over its seeds"
    return {
        "fraction": fraction,
        "share": share,
        "low": needed["low"],
        "high": needed["high"],
        "rows": rows,
        "reason": f"{fraction:.1%} of the rows: from there on {found.path} keeps {share:.0%} of full "
        f"quality (measured on {rows:,} rows{spread})",
    }


def _check_rules(path: Path, curve: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    measured = curve.get("select")
    if measured is None:
        raise ArtifactError(
            f"{path} does not say how its rows were chosen",
            fix="run the comparison again, it keeps what it has",
        )
    differ = [
        f"{name} {measured.get(name, 'not set')} (here {wanted.get(name, 'not set')})"
        for name in RULES
        if measured.get(name) != wanted.get(name)
    ]
    if differ:
        raise SettingError(
            f"the curve of {path} is of another way to choose: {', '.join(differ)}",
            fix="select as it did, or compare with these settings",
        )
