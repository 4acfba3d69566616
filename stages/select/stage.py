"""The select stage: cluster map in, weighted examples out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np

from formats import artifacts
from formats.artifacts import Header
from formats.clusters import Clusters
from formats.places import local, relative
from formats.selection import write_selection
from stages.reporting import Reporter, Silent
from stages.select import methods
from stages.select.budget import Budget, Floor
from stages.select.budget import rows as rows_of
from stages.select.coverage import curve as coverage_curve
from stages.select.enough import enough
from stages.select.expect import Input, expected, further_inputs
from stages.select.lists import read_lists
from stages.select.pool import Pool, read_pool
from stages.select.quotas import needed
from stages.select.report import figures, report
from stages.select.settings import Settings
from stages.select.strata import read_strata
from stages.select.target import read_target, targeted
from stages.select.weights import share_weights

STDOUT: Literal["-"] = "-"
_CAVEAT = (
    "coverage tells how distinct the rows are, not how many of them a model has to see; "
    "--curve asks a comparison of yours"
)


def select(
    clusters: Path,
    output: Path | Literal["-"],
    *,
    method: str = "cluster",
    fraction: float | Literal["auto"] | None = None,
    count: int | None = None,
    tokens: int | None = None,
    quota: str | float = Settings.quota,
    within: str = Settings.within,
    trim: float = Settings.trim,
    weights: bool = False,
    seed: int = 0,
    coverage: float = 0.95,
    must_include: Path | None = None,
    exclude: Path | None = None,
    min_per_cluster: int = 0,
    stratify: str | None = None,
    target: Path | None = None,
    curve: Path | None = None,
    signatures: Path | None = None,
    force: bool = False,
    reporter: Reporter = Silent(),
) -> Header:
    """Chooses examples from every cluster, rare lessons more often than their share.

    The defaults are those that were measured to teach most; the published method is ``quota="equal"``,
    ``within="farthest"`` and ``weights=True``.

    Args:
        clusters: a ``clusters.zarr``.
        output: the ``selection.jsonl`` to write, or "-" for stdout.
        method: one of ``stages.select.methods.METHODS``.
        fraction: of the clustered rows that are not excluded, or "auto": as small as ``curve`` or
            ``coverage`` allows. One of fraction, count and tokens must be given, except for the method
            ``all``.
        count: how many examples.
        tokens: how many prompt and response tokens at most.
        quota: how the budget is shared over clusters: a name, or a power of their size
            (``stages.select.quotas``).
        within: which members of a cluster come first, see ``stages.select.members``.
        trim: fraction of outliers that are avoided where a cluster has other members. They are broken text,
            and as often the rarest lessons; of use with ``within="farthest"``, which looks for them.
        weights: restore every cluster's share by loss weights (``stages.select.weights``); else all
            are 1, and small clusters count for more than in the whole dataset.
        seed: of random choices.
        coverage: with the fraction "auto", how near the nearest selected example must be to every
            example, as a share of what selecting everything reaches (``stages.select.coverage``).
        must_include: a file of ids or row numbers that are selected whatever the method says; they
            count toward the budget and their cluster's quota (``stages.select.lists``).
        exclude: a file of ids or row numbers that are left out, as if they were not in the data: they
            count neither in a fraction nor in a cluster's share.
        min_per_cluster: every cluster keeps so many distinct contents, or all it has.
        stratify: a column of the original data; the budget is shared over its values in proportion to
            their rows, quotas are drawn inside each, and weights keep the mix of both
            (``stages.select.quotas``, ``stages.select.weights``).
        target: a ``signatures.zarr`` of wanted examples: prefer what is aligned with them, and leave
            all weights at 1 (``stages.select.target``).
        curve: with the fraction "auto", a comparison at several fractions: what its learning curve needs
            to be nearly as good as all rows (``stages.select.enough``), instead of ``coverage``.
        signatures: where the map's ``signatures.zarr`` is, if not where the map says; read by ``target``,
            the fraction "auto", the methods ``k-centre``, ``facility`` and ``tagcos``, and the greedy
            orders within clusters.
        force: do it again even when the output is up to date.
        reporter: where messages go.

    Returns:
        The header of the selection.

    Raises:
        SettingError: an unknown name, a value out of range, settings that contradict each other, or a
            budget larger than the data or smaller than what has to be selected.
        DataError: a list or the data cannot be read, or a line of a list names nothing that could be
            selected.
        ArtifactError: the map, the target or the curve cannot be read, the map holds no clustered row, was
            made from signatures of another kind than the method's or of another space than the target's.
        OutputBusyError: another process is writing the output.
    """
    source = Clusters.open(clusters)
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
        must_include=must_include,
        exclude=exclude,
        min_per_cluster=min_per_cluster,
        stratify=stratify,
        target=target,
        curve=curve,
    )
    methods.check_map(method, source)
    chosen_method = methods.find(method)
    budget = Budget(fraction, count, tokens)
    settings = Settings(params["quota"], within, trim, seed, signatures, min_per_cluster)

    def make(folder: Path | None) -> tuple[Header, dict[str, np.ndarray]]:
        strata = read_strata(source, stratify, reporter) if stratify is not None else None
        pool = read_pool(source, read_lists(source, must_include, exclude), strata)
        aim = read_target(target, source, pool, signatures) if target is not None else None
        if aim is not None:
            choose = targeted(pool, aim, settings)
        else:
            choose = chosen_method.prepare(source, pool, settings)
        floor, allowed, notes = _floor(pool, settings, must_include), budget, dict[str, Any]()
        if fraction == "auto":
            if curve is not None:
                notes["learned"] = found = enough(curve, params)
            else:
                notes["coverage"] = found = coverage_curve(
                    source, pool, choose, signatures, coverage, floor.count
                )
            reporter.message(found["reason"])
            if curve is None:
                reporter.message(_CAVEAT)
            allowed = Budget(count=max(floor.count, rows_of(found["fraction"], pool)))
        chosen = allowed.apply(pool, choose, floor)
        chosen = chosen[np.argsort(pool.row[chosen], kind="stable")]
        can_weight = chosen_method.weighted and aim is None
        restored = weights and can_weight
        weight_M = share_weights(pool, chosen) if restored else np.ones(len(chosen))
        if aim is not None:
            notes["target"] = aim.stats(chosen)
        stats = {**figures(source, pool, chosen, weight_M), **notes}
        report(stats, can_weight, reporter)
        read = further_inputs(must_include, exclude, target, curve)
        return _header(source, read, folder, key, params, stats), _columns(pool, chosen, weight_M)

    if output == STDOUT:
        header, columns = make(None)
        write_selection(sys.stdout, header, columns)
        return header
    output = local(output)
    with artifacts.locked(output):
        if not force and (fresh := artifacts.fresh_header(output, "selection", key)):
            artifacts.touch(output, "selection")
            reporter.message(f"{output} is up to date")
            return fresh
        header, columns = make(output.parent)
        write_selection(output, header, columns)
    return header


def _floor(pool: Pool, settings: Settings, must_include: Path | None) -> Floor:
    """The examples that have to be selected, and why."""
    count = int(needed(pool, settings.min_per_cluster).sum())
    reasons = []
    if settings.min_per_cluster:
        reasons.append(f"--min-per-cluster {settings.min_per_cluster}")
    if pool.must.any():
        reasons.append(f"--must-include {must_include}")
    return Floor(max(1, count), tuple(reasons))


def _columns(pool: Pool, chosen: np.ndarray, weight_M: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "row": pool.row[chosen],
        "id": pool.id[chosen],
        "cluster": pool.label[chosen],
        "weight": weight_M,
        "similarity": pool.similarity[chosen],
        "tokens": pool.tokens[chosen],
    }


def _header(
    source: Clusters,
    read: list[Input],
    folder: Path | None,
    key: str,
    params: dict[str, Any],
    stats: dict[str, Any],
) -> Header:
    path, extra = source.path, source.header.extra

    rows = {
        "must_include": stats.get("must_include", 0),
        "exclude": stats.get("excluded", 0),
        "target": stats.get("target", {}).get("examples", 0),
        "curve": stats.get("learned", {}).get("rows", 0),
    }

    def entry(path: Path, sha256: str, rows: int) -> dict[str, Any]:
        return {"path": relative(path, folder), "sha256": sha256, "rows": rows}

    return Header(
        kind="selection",
        key=key,
        params=params,
        inputs=[
            entry(path, source.header.key, source.rows),
            *(entry(item.path, item.sha256, rows[item.name]) for item in read),
        ],
        stats=stats,
        dataset=artifacts.rebase_dataset(source.header.dataset, path.parent, folder),
        extra={name: extra[name] for name in ("space", "space_id", "rendering") if name in extra},
    )
