"""What a selection depends on: checks, parameters and key, without looking at the map or the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

from formats import artifacts
from formats.comparison import Comparison
from formats.errors import SettingError
from formats.fingerprints import file_sha256
from stages.select import methods
from stages.select.budget import Budget
from stages.select.quotas import find_quota
from stages.select.settings import Settings

STAGE_VERSION = 2


class Input(NamedTuple):
    """A file that is read besides the map: the argument's name, where it is, and its content hash."""

    name: str
    path: Path
    sha256: str


def expected(
    clusters: str,
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
) -> tuple[dict[str, Any], str]:
    """The parameters and the key of the selection ``select`` would write, without reading the map.

    Args:
        clusters: the key of the cluster map.
        method, fraction, count, tokens, quota, within, trim, weights, seed, coverage, must_include,
            exclude, min_per_cluster, stratify, target, curve: as in ``select``.

    Raises:
        SettingError: an unknown method or quota, a value out of range, or settings that contradict each
            other.
        DataError, ArtifactError: one of the files cannot be read.
    """
    quota = find_quota(quota)
    _check(method, Budget(fraction, count, tokens), trim, min_per_cluster, stratify)
    if target is not None:
        _check_targeted(method, quota, within, stratify)
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
    if curve is not None and fraction != "auto":
        raise SettingError(
            "--curve says how much --fraction auto selects, and that is not given",
            fix="give --fraction auto, or drop --curve",
        )
    if fraction == "auto" and curve is None:
        if not 0 < coverage <= 1:
            raise SettingError(f"--coverage is {coverage}", fix="give a number above 0, at most 1")
        params["coverage"] = coverage
    if min_per_cluster:
        params["min_per_cluster"] = min_per_cluster
    if stratify is not None:
        params["stratify"] = stratify
    read = further_inputs(must_include, exclude, target, curve)
    params |= {item.name: True for item in read}
    inputs = [clusters, *(item.sha256 for item in read)]
    return params, artifacts.stage_key("select", STAGE_VERSION, params=params, inputs=inputs)


def further_inputs(
    must_include: Path | None = None,
    exclude: Path | None = None,
    target: Path | None = None,
    curve: Path | None = None,
) -> list[Input]:
    """The files among the arguments of ``select``, in this order; those that are None are left out.

    Raises:
        DataError, ArtifactError: one cannot be read.
    """
    lists = {"must_include": must_include, "exclude": exclude}
    read = [Input(name, Path(p), file_sha256(p)) for name, p in lists.items() if p is not None]
    if target is not None:
        key = artifacts.read_header(target, "signatures").key
        read.append(Input("target", target, key))
    if curve is not None:
        found = Comparison.open(curve)
        read.append(Input("curve", found.path, found.header.key))
    return read


def _check(
    method: str, budget: Budget, trim: float, min_per_cluster: int, stratify: str | None
) -> None:
    found = methods.find(method)
    budget.check(found.needs_budget)
    if not 0 <= trim < 0.5:
        raise SettingError(f"--trim is {trim}", fix="give a fraction from 0 to below 0.5")
    if min_per_cluster < 0:
        raise SettingError(f"--min-per-cluster is {min_per_cluster}", fix="give 0 or more")
    if stratify == "":
        raise SettingError("--stratify is empty", fix="name a column of the data")
    for flag, given in (("--min-per-cluster", min_per_cluster), ("--stratify", stratify)):
        if given and not found.quotas:
            names = ", ".join(name for name, other in methods.METHODS.items() if other.quotas)
            raise SettingError(
                f"{flag} sets quotas, and --method {method} has none", fix=f"use one of {names}"
            )


def _check_targeted(method: str, quota: str | float, within: str, stratify: str | None) -> None:
    if method != "cluster":
        raise SettingError(
            f"--target and --method {method} are both given", fix="drop one of the two"
        )
    if stratify is not None:
        raise SettingError(
            f"--target changes the mix, and --stratify {stratify} keeps it",
            fix="drop one of the two",
        )
    for flag, value, default in (
        ("quota", quota, Settings.quota),
        ("within", within, Settings.within),
    ):
        if value != default:
            raise SettingError(
                f"--target sets its own quotas and order, and --{flag} {value} is given",
                fix=f"drop --{flag}",
            )
