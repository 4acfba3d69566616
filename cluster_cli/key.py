"""``cluster-cli key``: arguments and printing; the work is ``stages.pipeline``."""

from __future__ import annotations

from pathlib import Path

import click

from cluster_cli import pipeline
from cluster_cli.settings import STAGES
from formats.errors import SettingError


@click.command("key")
@click.argument("stage", type=click.Choice(STAGES))
@pipeline.file_argument
@click.pass_context
def command(ctx: click.Context, stage: str, file: Path | None) -> None:
    """Print a hash of all that STAGE's result depends on: settings, data and models.

    It is the same whether or not anything has been made, so a CI cache can be named after it:

    \b
    cluster-cli key score           # changes when score would compute something else
    """
    from stages.pipeline import keys

    with pipeline.opened(ctx, file) as chain:
        if stage not in chain.stages:
            raise SettingError(
                f"this pipeline has no stage {stage!r}",
                fix=f"its stages are {', '.join(chain.stages)}",
            )
        click.echo(keys(chain)[stage])
