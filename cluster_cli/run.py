"""``cluster-cli run``: arguments and printing; the work is ``stages.pipeline``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cluster_cli import pipeline, printing
from cluster_cli.options import force_option
from cluster_cli.settings import STAGES


@click.command("run")
@pipeline.file_argument
@click.option(
    "--from",
    "since",
    type=click.Choice(STAGES),
    help="Begin here; the stages before it are taken as they are.",
)
@click.option("--until", type=click.Choice(STAGES), help="End here.")
@click.option("-n", "--dry-run", is_flag=True, help="Print what would run, and why; do nothing.")
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print the stages' states as JSON on stdout.")
@click.pass_context
def command(
    ctx: click.Context,
    file: Path | None,
    since: str | None,
    until: str | None,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Run the whole chain of a file, each stage only when its result would be another.

    The file has a section per stage with the keys of its command's options; `data` and `model` stand in
    [score]. The chain ends with the last section. Its paths start at the file's folder.

    \b
    cluster-cli run                              # cluster.toml
    cluster-cli run mine.toml --until select
    cluster-cli --set select.seed=2 run -n
    """
    from stages.pipeline import run, status

    with pipeline.opened(ctx, file) as chain:
        if dry_run:
            found = status(chain, since, until)
        else:
            found = run(chain, since=since, until=until, force=force, reporter=ctx.obj)
    if as_json:
        printing.as_json([{**state.to_json(), "runs": force or not state.fresh} for state in found])
    elif dry_run:
        printing.rows([(state.stage, *_plan(state, force)) for state in found])


def _plan(state: Any, force: bool) -> tuple[str, str]:
    """What would be done, and why."""
    if state.fresh:
        return ("run", "forced") if force else ("up to date", str(state.output))
    action = "resume" if state.state == "incomplete" and not force else "run"
    return action, "; ".join(state.reasons)
