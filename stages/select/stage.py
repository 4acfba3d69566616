"""The select stage: cluster map in, weighted examples out."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np

from formats import artifacts
from formats.artifacts import Header
from formats.clusters import Clusters
from formats.errors import SettingError
from formats.selection import write_selection
from stages.reporting import Reporter, Silent
from stages.select import methods
from stages.select.budget import Budget
from stages.select.coverage import curve
from stages.select.pool import Pool, read_pool
from stages.select.settings import Settings
from stages.select.weights import cluster_weights, effective

STAGE_VERSION = 1
STDOUT: Literal["-"] = "-"
_LOW = 0.6  # effective sample size, as a fraction, below which weights cost more than they should


def select(
    clusters: Path,
    output: Path | Literal["-"],
    *,
    method: str = "cluster",
    fraction: float | Literal["auto"] | None = None,
    count: int | None = None,
    tokens: int | None = None,
    quota: str = "equal",
    within: str = "farthest",
    trim: float = 0.01,
    weights: bool = True,
    seed: int = 0,
    coverage: float = 0.95,
    signatures: Path | None = None,
    force: bool = False,
    reporter: Reporter = Silent(),
) -> Header:
    """Chooses examples from every cluster and weights them so that the mix is not distorted.

    Args:
        clusters: a ``clusters.zarr``.
        output: the ``selection.jsonl`` to write, or "-" for stdout.
        method: one of ``stages.select.methods.METHODS``.
        fraction: of the clustered rows, or "auto": as small as ``coverage`` allows. One of fraction,
            count and tokens must be given, except for the method ``all``.
        count: how many examples.
        tokens: how many prompt and response tokens at most.
        quota: how the budget is shared over clusters, see ``stages.select.quotas``.
        within: which members of a cluster come first, see ``stages.select.members``.
        trim: fraction of outliers that are avoided where a cluster has other members.
        weights: restore every cluster's share by loss weights; False sets all to 1, for ablation.
        seed: of random choices.
        coverage: with the fraction "auto", how near the nearest selected example must be to every
            example, as a share of what selecting everything reaches (``stages.select.coverage``).
        signatures: where the map's ``signatures.zarr`` is, if not where the map says; read by the
            fraction "auto", the methods ``k-centre``, ``facility`` and ``tagcos``, and the greedy
            orders within clusters.
        force: do it again even when the output is up to date.
        reporter: where messages go.

    Returns:
        The header of the selection.

    Raises:
        SettingError: an unknown name, a value out of range, or a budget larger than the data.
        ArtifactError: the map cannot be read, or holds no clustered row.
        OutputBusyError: another process is writing the output.
    """
    budget = Budget(fraction, count, tokens)
    chosen_method = _check(method, budget, trim)
    source = Clusters.open(Path(clusters))
    params, key = expected(
        source.header.key,
        method=method,
        fraction=fraction,
        count=count,
        tokens=tokens,
        quota=quota,
        within=within,
        trim=trim,
        weights=weights,
        seed=seed,
        coverage=coverage,
    )
    settings = Settings(quota, within, trim, seed, signatures)

    def make(folder: Path | None) -> tuple[Header, dict[str, np.ndarray]]:
        pool = read_pool(source)
        choose = chosen_method.prepare(source, pool, settings)
        allowed, notes = budget, {}
        if fraction == "auto":
            notes["coverage"] = found = curve(source, pool, choose, signatures, coverage)
            allowed = Budget(fraction=found["fraction"])
            reporter.message(found["reason"])
        chosen = allowed.apply(pool, choose)
        chosen = chosen[np.argsort(pool.row[chosen], kind="stable")]
        weight_M = np.ones(len(chosen))
        if weights and chosen_method.weighted:
            weight_M = cluster_weights(pool.label[chosen], pool.size)
        stats = {**_stats(source, pool, chosen, weight_M), **notes}
        _report(stats, reporter)
        return _header(source, folder, key, params, stats), _columns(pool, chosen, weight_M)

    if output == STDOUT:
        header, columns = make(None)
        write_selection(sys.stdout, header, columns)
        return header
    output = Path(output)
    with artifacts.locked(output):
        if not force and (fresh := artifacts.fresh_header(output, "selection", key)):
            artifacts.touch(output, "selection")
            reporter.message(f"{output} is up to date")
            return fresh
        header, columns = make(output.parent)
        write_selection(output, header, columns)
    return header


def expected(
    clusters: str,
    *,
    method: str = "cluster",
    fraction: float | Literal["auto"] | None = None,
    count: int | None = None,
    tokens: int | None = None,
    quota: str = "equal",
    within: str = "farthest",
    trim: float = 0.01,
    weights: bool = True,
    seed: int = 0,
    coverage: float = 0.95,
) -> tuple[dict[str, Any], str]:
    """The parameters and the key of the selection ``select`` would write, without reading anything.

    Args:
        clusters: the key of the cluster map.
        method, fraction, count, tokens, quota, within, trim, weights, seed, coverage: as in
            ``select``.

    Raises:
        SettingError: an unknown method, or a value out of range.
    """
    _check(method, Budget(fraction, count, tokens), trim)
    params = {
        "method": method,
        "fraction": fraction,
        "count": count,
        "tokens": tokens,
        "quota": quota,
        "within": within,
        "trim": trim,
        "weights": weights,
        "seed": seed,
    }
    if fraction == "auto":
        if not 0 < coverage <= 1:
            raise SettingError(f"--coverage is {coverage}", fix="give a number above 0, at most 1")
        params["coverage"] = coverage
    return params, artifacts.stage_key("select", STAGE_VERSION, params=params, inputs=[clusters])


def _check(method: str, budget: Budget, trim: float) -> methods.Method:
    found = methods.find(method)
    budget.check(found.needs_budget)
    if not 0 <= trim < 0.5:
        raise SettingError(f"--trim is {trim}", fix="give a fraction from 0 to below 0.5")
    return found


def _columns(pool: Pool, chosen: np.ndarray, weight_M: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "row": pool.row[chosen],
        "id": pool.id[chosen],
        "cluster": pool.label[chosen],
        "weight": weight_M,
        "similarity": pool.similarity[chosen],
        "tokens": pool.tokens[chosen],
    }


def _stats(
    source: Clusters, pool: Pool, chosen: np.ndarray, weight_M: np.ndarray
) -> dict[str, Any]:
    taken = int(pool.tokens[chosen].sum(dtype=np.int64))
    total = int(pool.tokens.sum(dtype=np.int64))
    return {
        "rows": source.rows,
        "clusterable": len(pool),
        "selected": len(chosen),
        "fraction": round(len(chosen) / len(pool), 6),
        "repeated": int((~pool.distinct[chosen]).sum()),
        "clusters": int((pool.size > 0).sum()),
        "clusters_represented": len(np.unique(pool.label[chosen])),
        **effective(weight_M),
        "largest_weight": round(float(weight_M.max()), 6),
        "tokens": taken,
        "tokens_total": total,
        "tokens_fraction": round(taken / total, 6),
    }


def _report(stats: dict[str, Any], reporter: Reporter) -> None:
    missing = stats["clusters"] - stats["clusters_represented"]
    if missing:
        reporter.warn(
            f"{missing} of {stats['clusters']} clusters are not represented: the budget of "
            f"{stats['selected']} examples is too small, or the method does not look at clusters"
        )
    if stats["ess_fraction"] < _LOW:
        reporter.warn(
            f"the weights are very unequal: {stats['selected']} examples count like "
            f"{stats['effective_sample_size']:.0f} ({stats['ess_fraction']:.0%}); "
            "--quota sqrt or proportional makes them more equal"
        )
    reporter.message(
        f"selected {stats['selected']:,} of {stats['clusterable']:,} rows "
        f"({stats['fraction']:.1%}, {stats['tokens_fraction']:.1%} of the tokens) from "
        f"{stats['clusters_represented']} of {stats['clusters']} clusters; effective sample size "
        f"{stats['effective_sample_size']:,.0f}"
    )


def _header(
    source: Clusters, folder: Path | None, key: str, params: dict[str, Any], stats: dict[str, Any]
) -> Header:
    path, extra = source.path, source.header.extra
    return Header(
        kind="selection",
        key=key,
        params=params,
        inputs=[
            {
                "path": os.path.relpath(path, folder) if folder else os.path.abspath(path),
                "sha256": source.header.key,
                "rows": source.rows,
            }
        ],
        stats=stats,
        dataset=artifacts.rebase_dataset(source.header.dataset, path.parent, folder),
        extra={name: extra[name] for name in ("space", "space_id", "rendering") if name in extra},
    )
