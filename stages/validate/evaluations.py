"""Checks of an ``evaluation.json``: its columns, and that its figures follow from them."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from formats.errors import ArtifactError
from formats.evaluation import LOSSES, METRICS, Evaluation, groups, ratios

_NEAR = 1e-9  # relative: sums in another order


def evaluation(path: Path) -> str:
    """Checks an ``evaluation.json``.

    Raises:
        ArtifactError: see ``stages.validate.validate``.
    """
    found = Evaluation.open(path)
    rows, ids = found.examples.get("row"), found.examples.get("id")
    if not isinstance(rows, list) or not isinstance(ids, list):
        raise ArtifactError(f"{path}: its examples have no rows or no ids")
    for before, after in itertools.pairwise(rows):
        if not after > before:
            raise ArtifactError(f"{path}: row {after} comes after row {before}; rows must ascend")
    for row, name in zip(rows, ids, strict=True):
        if not re.fullmatch("[0-9a-f]{32}", str(name)):
            raise ArtifactError(
                f"{path}: the id of row {row} is {name!r}, not 32 hexadecimal digits"
            )
    _check_counts(found)
    _check_columns(found)
    _check_figures(found, "overall", found.results.get("overall"), np.arange(len(found)))
    counted = groups(found.examples)
    for column, values in counted.items():
        said = found.results.get("by", {}).get(column, {})
        if said.keys() != values.keys():
            raise ArtifactError(f"{path}: the groups of {column} are not those of its examples")
        for value, places in values.items():
            _check_figures(found, f"{column} {value}", said[value], places)
    tasks = f", {len(found.tasks)} tasks of the harness" if found.tasks else ""
    return f"{len(found):,} examples, {len(ratios(found.examples))} metrics{tasks}"


def _check_counts(found: Evaluation) -> None:
    counts = {"measured": len(found), "tokens": int(sum(found.examples.get("tokens", [])))}
    for name, value in counts.items():
        said = found.header.stats.get(name, value)
        if said != value:
            raise ArtifactError(
                f"{found.path}: {name} is {value:,} by the examples, the header says {said:,}"
            )


def _check_columns(found: Evaluation) -> None:
    """Losses are 0 or more, the other metrics parts of 1; every example has a loss and tokens."""
    for name in METRICS:
        if name not in found.examples:
            continue
        most = math.inf if name in LOSSES else 1.0
        values = found.column(name)
        good = (values >= 0) & (values <= most) & np.isfinite(values)
        if name != "loss":
            good |= np.isnan(values)
        _require(found, name, good, values)
    if len(found):
        _require(found, "tokens", found.column("tokens") > 0, found.column("tokens"))
        _require(found, "loss", np.isfinite(found.column("loss")), found.column("loss"))


def _require(found: Evaluation, name: str, good: np.ndarray, values: np.ndarray) -> None:
    if not good.all():
        at = int(np.flatnonzero(~good)[0])
        row = found.examples["row"][at]
        raise ArtifactError(f"{found.path}: {name} of row {row} is {values[at]:g}")


def _check_figures(found: Evaluation, who: str, said: Any, places: np.ndarray) -> None:
    """The values are those of the examples, and stand inside their intervals or near them."""
    for metric, (top_N, bottom_N) in ratios(found.examples).items():
        top_n, bottom_n = top_N[places], bottom_N[places]
        known = ~np.isnan(top_n)
        if not known.any():
            continue
        value = float(top_n[known].sum() / bottom_n[known].sum())
        figure = (said or {}).get(metric, {})
        if figure.get("examples") != int(known.sum()) or not math.isclose(
            figure.get("value", math.nan), value, rel_tol=_NEAR, abs_tol=1e-12
        ):
            raise ArtifactError(
                f"{found.path}: {metric} of {who} is {value:.6g} by {int(known.sum()):,} examples, "
                f"the results say {figure.get('value')} by {figure.get('examples')}"
            )
        low, high = figure.get("low"), figure.get("high")
        if (low is None) != (high is None) or (low is not None and low > high):
            raise ArtifactError(f"{found.path}: {metric} of {who} has no interval: {low} to {high}")
