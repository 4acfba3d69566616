"""``cluster-cli status``: arguments and printing; the work is ``stages.pipeline``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster_cli import pipeline, printing
from cluster_cli.options import PATH, followed

if TYPE_CHECKING:
    from stages.pipeline import State


@click.command("status")
@click.argument("places", type=PATH, nargs=-1, metavar="[CLUSTER.TOML|ARTIFACT...]")
@click.option("--check", is_flag=True, help="Exit with 1 when anything is not fresh.")
@click.option("--json", "as_json", is_flag=True, help="Print the states as JSON on stdout.")
@click.pass_context
def command(ctx: click.Context, places: tuple[Path, ...], check: bool, as_json: bool) -> int:
    """Say of every stage whether its output is fresh, stale, incomplete or missing, and why.

    Of artifacts by themselves, only content can be compared: stale is what was made from data, a model or
    another artifact that is not the same any more.

    \b
    cluster-cli status
    cluster-cli status mine.toml --check   # exit code 1 when `run` would do something
    cluster-cli status work/clusters.zarr work/run
    """
    found = _states(ctx, places)
    if as_json:
        printing.as_json([state.to_json() for state in found])
    else:
        rows = [(s.stage or "-", s.state, str(s.output), "; ".join(s.reasons)) for s in found]
        printing.rows(rows)
    return int(check and not all(state.fresh for state in found))


def _states(ctx: click.Context, places: tuple[Path, ...]) -> list[State]:
    from stages.pipeline import status, status_of

    files = [place for place in places if place.suffix == ".toml"]
    if places and not files:
        return [status_of(followed(place)) for place in places]
    if len(places) > 1:
        raise click.UsageError(f"{files[0]} says which artifacts; give it alone, or artifacts")
    with pipeline.opened(ctx, files[0] if files else None) as chain:
        return status(chain)
