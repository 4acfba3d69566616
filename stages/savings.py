"""savings: what selecting costs, what it saves, and from when on it pays. Arithmetic alone.

Hours of full training H, of training on the subset h, of selecting S, of selecting for one more job while
the cluster map is used again R, epochs E, jobs J:

    saved = H - h                                 speed-up = H / h
    net   = J (H - h) - S - (J - 1) R             with a reused map
    net   = J (H - h - S)                         with a new map for every job

Selecting pays where net > 0. Numbers are taken by their decimal digits and added exactly, so that a
break-even of exactly three jobs is three jobs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.artifacts import Header
from formats.errors import ArtifactError, SettingError
from formats.kinds import artifact_path, find_kind
from formats.runs import read_metrics

_SAME = ("device", "world_size", "weights", "dtype")  # what two runs must share to be compared


@dataclass(frozen=True)
class Savings:
    """Hours, shares and counts; all hours are of the clock, whatever number of devices worked.

    Attributes:
        full_hours: of one training job on everything.
        subset_hours: of the same on the subset.
        selection_hours: of selecting for the first job.
        reuse_hours: of selecting for each further job with the same cluster map.
        epochs: of a job.
        jobs: trained alike.
        saved_hours, saved_share, speedup: of one job, selection not counted; no speed-up when the
            subset takes no time.
        net_hours: of one job, selection counted.
        reused_net_hours, anew_net_hours: of all jobs, with a reused map and a new one for each.
        epochs_exact: how many epochs' saving is worth one selection; None when nothing is saved.
        pays_from_epoch: first whole number of epochs of one job with which net > 0; None for never.
        reused_pays_from_job, anew_pays_from_job: the same for jobs of ``epochs`` epochs.
        notes: what is assumed.
        cautions: what speaks against the figures.
        parts: measured hours of each step of the selection, None where no time is recorded.
    """

    full_hours: float
    subset_hours: float
    selection_hours: float
    reuse_hours: float
    epochs: int
    jobs: int
    saved_hours: float
    saved_share: float
    speedup: float | None
    net_hours: float
    reused_net_hours: float
    anew_net_hours: float
    epochs_exact: float | None
    pays_from_epoch: int | None
    reused_pays_from_job: int | None
    anew_pays_from_job: int | None
    notes: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    parts: dict[str, float | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def savings(
    full_hours: float,
    *,
    fraction: float | None = None,
    subset_hours: float | None = None,
    selection_hours: float = 0.0,
    reuse_hours: float = 0.0,
    epochs: int = 1,
    jobs: int = 1,
    notes: Sequence[str] = (),
    cautions: Sequence[str] = (),
    parts: dict[str, float | None] | None = None,
) -> Savings:
    """The arithmetic; the formulas stand above.

    Args:
        full_hours: above 0, of one job of ``epochs`` epochs.
        fraction: of the training tokens that the subset has; or
        subset_hours: as measured.

    Raises:
        SettingError: a number is out of range, or not exactly one of fraction and subset hours is given.
    """
    _check(full_hours, fraction, subset_hours, selection_hours, reuse_hours, epochs, jobs)
    full, once, again = _exact(full_hours), _exact(selection_hours), _exact(reuse_hours)
    subset = full * _exact(fraction) if fraction is not None else _exact(subset_hours or 0.0)
    saved = full - subset
    per_epoch = saved / epochs
    return Savings(
        full_hours=float(full),
        subset_hours=float(subset),
        selection_hours=float(once),
        reuse_hours=float(again),
        epochs=epochs,
        jobs=jobs,
        saved_hours=float(saved),
        saved_share=float(saved / full),
        speedup=float(full / subset) if subset else None,
        net_hours=float(saved - once),
        reused_net_hours=float(jobs * saved - once - (jobs - 1) * again),
        anew_net_hours=float(jobs * (saved - once)),
        epochs_exact=float(once / per_epoch) if per_epoch > 0 else None,
        pays_from_epoch=first_above(per_epoch, once),
        reused_pays_from_job=first_above(saved - again, once - again),
        anew_pays_from_job=1 if saved > once else None,
        notes=list(notes) or _assumed(fraction),
        cautions=list(cautions),
        parts=dict(parts or {}),
    )


def first_above(gain: Fraction, cost: Fraction) -> int | None:
    """The smallest n >= 1 with n * gain > cost; None where there is none."""
    if gain > cost:
        return 1
    return math.floor(cost / gain) + 1 if gain > 0 else None


def _exact(value: float) -> Fraction:
    return Fraction(repr(float(value)))


def _check(
    full: float,
    fraction: float | None,
    subset: float | None,
    selection: float,
    reuse: float,
    epochs: int,
    jobs: int,
) -> None:
    if (fraction is None) == (subset is None):
        raise SettingError("give the subset's fraction or its hours, one of them")
    checks = (
        (0 < full < math.inf, "full_hours", full, "above 0"),
        (fraction is None or 0 < fraction < math.inf, "fraction", fraction, "above 0"),
        (subset is None or 0 <= subset < math.inf, "subset_hours", subset, "0 or more"),
        (0 <= selection < math.inf, "selection_hours", selection, "0 or more"),
        (0 <= reuse < math.inf, "reuse_hours", reuse, "0 or more"),
        (epochs > 0, "epochs", epochs, "1 or more"),
        (jobs > 0, "jobs", jobs, "1 or more"),
    )
    wrong = [
        f"{name} is {got!r}, it must be {rule}" for good, name, got, rule in checks if not good
    ]
    if wrong:
        raise SettingError("; ".join(wrong))


def _assumed(fraction: float | None) -> list[str]:
    return [
        f"training time is linear in tokens, of which the subset has {_percent(fraction or 0.0)}",
        *_ALWAYS,
    ]


_ALWAYS = (
    "same hardware, same batches and same number of epochs for both",
    "an hour of selecting costs as much as an hour of training",
    "nothing is said about quality: compare the evaluations",
)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def measured(
    full: Path,
    subset: Path,
    *,
    selection: Sequence[Path] = (),
    selection_hours: float | None = None,
    reuse_hours: float = 0.0,
    jobs: int = 1,
) -> Savings:
    """The same from two runs, and from the times that the selection's artifacts have recorded.

    Args:
        full: the run on everything (its folder or ``run.json``).
        subset: the run on the selection.
        selection: artifacts whose time counts as selecting; those the subset's run was made from, as
            far as they are there, unless given.
        selection_hours: instead of any recorded time.

    Raises:
        ArtifactError: a run or artifact cannot be read.
        SettingError: both are the same run, or no time of selecting is known.
    """
    full, subset = artifact_path(full), artifact_path(subset)
    whole, part = (artifacts.read_header(path, "run") for path in (full, subset))
    if whole.key == part.key:
        raise SettingError(f"{full} and {subset} are the same run", fix="give two different ones")
    parts: dict[str, float | None] = {}
    if selection_hours is None:
        chain = [(artifact_path(path), None) for path in selection] or _chain(subset, part)
        parts = {str(path): _hours(path, problem) for path, problem in chain}
        if all(hours is None for hours in parts.values()):
            raise SettingError(
                f"no time of selecting is recorded in {', '.join(parts) or 'anything'}",
                fix="name the artifacts with --selection, or give --selection-hours",
            )
        selection_hours = sum(hours or 0.0 for hours in parts.values())
    passes = _epochs(full), _epochs(subset)
    return savings(
        train_seconds(full, whole) / 3600,
        subset_hours=train_seconds(subset, part) / 3600,
        selection_hours=selection_hours,
        reuse_hours=reuse_hours,
        epochs=passes[0],
        jobs=jobs,
        notes=[
            "times as recorded by the runs; loading and saving models is not counted",
            *_ALWAYS,
        ],
        cautions=_cautions(whole, part, passes, parts),
        parts=parts,
    )


def train_seconds(path: Path, header: Header) -> float:
    """What a run recorded of its training, in seconds.

    Raises:
        ArtifactError: it recorded no positive, finite number.
    """
    seconds: Any = header.stats.get("train_seconds")
    if type(seconds) not in (int, float) or not 0 < seconds < math.inf:
        raise ArtifactError(f"{path / 'run.json'}: train_seconds is {seconds!r}, not a time")
    return float(seconds)


def _epochs(run: Path) -> int:
    return 1 + max((int(line.get("epoch", 0)) for line in read_metrics(run)), default=0)


def _chain(run: Path, header: Header) -> list[tuple[Path, str | None]]:
    """The allocation, selection, clusters and signatures a run was made from, and what is amiss."""
    found: list[tuple[Path, str | None]] = []
    path = run
    while header.kind != "signatures" and header.inputs:
        path = Path(os.path.normpath(path.parent / header.inputs[0]["path"]))
        try:
            header = artifacts.read_header(path, find_kind(path))
        except ArtifactError as error:
            return [*found, (path, error.problem)]
        found.append((path, None))
    return found


def _hours(path: Path, problem: str | None) -> float | None:
    if problem is not None:
        return None
    seconds: Any = artifacts.read_header(path, find_kind(path)).stats.get("seconds")
    return seconds / 3600 if type(seconds) in (int, float) else None


def _cautions(
    whole: Header, part: Header, passes: tuple[int, int], parts: dict[str, float | None]
) -> list[str]:
    found = [
        f"the runs differ in {name}: {whole.stats.get(name)} and {part.stats.get(name)}"
        for name in _SAME
        if whole.stats.get(name) != part.stats.get(name)
    ]
    if passes[0] != passes[1]:
        found.append(f"the runs differ in epochs: {passes[0]} and {passes[1]}")
    read = [[s["sha256"] for s in header.dataset.get("sources", [])] for header in (whole, part)]
    if read[0] != read[1]:
        found.append("the runs were trained on different data files")
    if unknown := [path for path, hours in parts.items() if hours is None]:
        found.append(f"no time is recorded for {', '.join(unknown)}: not counted")
    return found


def in_words(found: Savings) -> list[str]:
    """When selecting pays, one plain sentence each: for one job, and for several."""
    if found.saved_hours <= 0:
        return [
            "Selecting never pays: training takes "
            f"{as_time(found.subset_hours)} on the subset and {as_time(found.full_hours)} on everything."
        ]
    per_epoch = as_time(found.saved_hours / found.epochs)
    return [
        f"One job: selecting pays from {_count(found.pays_from_epoch, 'epoch')} on; an epoch saves "
        f"{per_epoch}, and {found.epochs_exact:.2f} of them make up for one selection.",
        _jobs("Several jobs, map reused", found.reused_pays_from_job, found, found.reuse_hours),
        _jobs("Several jobs, a new map for each", found.anew_pays_from_job, found, None),
    ]


def _jobs(who: str, first: int | None, found: Savings, again: float | None) -> str:
    if first is not None:
        return f"{who}: selecting pays from {_count(first, 'job')} on."
    cost = as_time(found.selection_hours if again is None else again)
    return (
        f"{who}: selecting never pays; a job of {_count(found.epochs, 'epoch')} saves "
        f"{as_time(found.saved_hours)}, and selecting for it costs {cost}."
    )


def as_time(hours: float) -> str:
    """Hours as a person reads them: hours, below a tenth of one minutes, below a minute seconds."""
    if abs(hours) >= 0.1 or hours == 0:
        return f"{hours:,.2f} h"
    minutes = 60 * hours
    return f"{minutes:.2f} min" if abs(minutes) >= 1 else f"{60 * minutes:.2f} s"


def _count(number: int | None, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
