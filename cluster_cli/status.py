"""``cluster-cli status``: arguments and printing; the work is ``stages.pipeline``."""

from __future__ import annotations

from pathlib import Path

import click

from cluster_cli import pipeline, printing


@click.command("status")
@pipeline.file_argument
@click.option("--check", is_flag=True, help="Exit with 1 when anything is not fresh.")
@click.option("--json", "as_json", is_flag=True, help="Print the states as JSON on stdout.")
@click.pass_context
def command(ctx: click.Context, file: Path | None, check: bool, as_json: bool) -> int:
    """Say of every stage whether its output is fresh, stale, incomplete or missing, and why.

    \b
    cluster-cli status
    cluster-cli status mine.toml --check   # exit code 1 when `run` would do something
    """
    from stages.pipeline import status

    with pipeline.opened(ctx, file) as chain:
        found = status(chain)
    if as_json:
        printing.as_json([state.to_json() for state in found])
    else:
        printing.rows([(s.stage, s.state, str(s.output), "; ".join(s.reasons)) for s in found])
    return int(check and not all(state.fresh for state in found))
