"""``cluster-cli savings``: arguments and printing; the work is ``stages.savings``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster_cli import printing
from cluster_cli.options import LOCAL_ARTIFACT

if TYPE_CHECKING:
    from stages.savings import Savings


_FREE = "the hours of selecting are not given (--selection-hours): counted as nothing"


@click.command("savings")
@click.option("--full-hours", type=float, help="Of one training job on everything.")
@click.option("--fraction", type=float, help="Part of the training tokens that the subset has.")
@click.option("--saved", type=float, help="Instead: part of the training time that is saved.")
@click.option("--selection-hours", type=float, help="Of selecting: score to allocate.")
@click.option(
    "--reuse-hours",
    type=float,
    default=0.0,
    show_default=True,
    help="Of selecting for one more job while the cluster map is used again.",
)
@click.option("--epochs", type=click.IntRange(1), help="Of a job.  [default: 1, or the run's]")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Alike.")
@click.option(
    "--full", type=LOCAL_ARTIFACT, metavar="RUN", help="A run on everything, instead of hours."
)
@click.option("--subset", type=LOCAL_ARTIFACT, metavar="RUN", help="A run on the selection.")
@click.option(
    "--selection",
    type=LOCAL_ARTIFACT,
    multiple=True,
    metavar="ARTIFACT",
    help="What was made to select.  [default: what the subset's run was made from]",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON on stdout.")
def command(
    full_hours: float | None,
    fraction: float | None,
    saved: float | None,
    selection_hours: float | None,
    reuse_hours: float,
    epochs: int | None,
    jobs: int,
    full: Path | None,
    subset: Path | None,
    selection: tuple[Path, ...],
    as_json: bool,
) -> None:
    """What selecting costs and saves, and from when on it pays: arithmetic, or from two runs.

    \b
    cluster-cli savings --full-hours 10 --fraction 0.31 --selection-hours 0.7
    cluster-cli savings --full full/run.json --subset run/run.json
    """
    from stages.savings import measured, savings

    if full or subset:
        given = (full_hours, fraction, saved, epochs)
        if not full or not subset or any(value is not None for value in given):
            raise click.UsageError(
                "give --full and --subset together, and without --full-hours, --fraction, --saved "
                "and --epochs: the runs say these"
            )
        found = measured(
            full,
            subset,
            selection=selection,
            selection_hours=selection_hours,
            reuse_hours=reuse_hours,
            jobs=jobs,
        )
    else:
        if full_hours is None or (fraction is None) == (saved is None) or selection:
            raise click.UsageError(
                "give --full-hours and one of --fraction and --saved, or --full and --subset"
            )
        found = savings(
            full_hours,
            fraction=_part(fraction, saved),
            selection_hours=selection_hours or 0.0,
            reuse_hours=reuse_hours,
            epochs=epochs or 1,
            jobs=jobs,
            cautions=() if selection_hours is not None else (_FREE,),
        )
    if as_json:
        printing.as_json(found.to_json())
    else:
        _print(found)


def _part(fraction: float | None, saved: float | None) -> float:
    if fraction is not None:
        return fraction
    assert saved is not None
    if not 0 <= saved < 1:
        raise click.BadParameter(f"--saved {saved} is no part of the time, 0 to below 1")
    return round(1 - saved, 12)  # 1 - 0.696 is 0.304 but for the last binary digit


def _print(found: Savings) -> None:
    from stages.savings import in_words

    speed = f", {found.speedup:.2f} times as fast" if found.speedup else ""
    less = "less" if found.saved_hours >= 0 else "more"
    share = f"{abs(100 * found.saved_share):.1f} % {less}{speed}"
    table = [
        ("full training", _hours(found.full_hours), ""),
        ("on the subset", _hours(found.subset_hours), share),
        ("saved", _hours(found.saved_hours), ""),
        ("selection", _hours(found.selection_hours), ""),
        *((f"  {path}", _hours(part), "") for path, part in found.parts.items()),
        ("net saving", _hours(found.net_hours), _of_full(found.net_hours, found)),
    ]
    if found.jobs > 1:
        reused, anew = found.reused_net_hours, found.anew_net_hours
        table += [
            (f"net of {found.jobs:,} jobs, map reused", _hours(reused), ""),
            (f"net of {found.jobs:,} jobs, a new map for each", _hours(anew), ""),
        ]
    width = max(len(hours) for _, hours, _ in table)
    printing.rows([(name, hours.rjust(width), note) for name, hours, note in table])
    click.echo("\n" + "\n".join(in_words(found)))
    click.echo("\nassuming")
    for note in found.notes:
        click.echo(f"  {note}")
    for caution in found.cautions:
        click.echo(f"caution: {caution}")


def _of_full(hours: float, found: Savings) -> str:
    return f"{100 * hours / found.full_hours:.1f} % of full training"


def _hours(hours: float | None) -> str:
    from stages.savings import as_time

    return "unknown" if hours is None else as_time(hours)
