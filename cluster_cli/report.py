"""``cluster-cli report``: arguments and help; the work is ``stages.report``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cluster_cli.options import LOCAL_ARTIFACT, output_option


@click.command("report")
@click.argument("source", type=LOCAL_ARTIFACT, metavar="RUN_OR_COMPARISON")
@output_option("The file to write; - is stdout.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("html", "md")),
    default="html",
    show_default=True,
    help="A page, or Markdown for a pull request.",
)
@click.option(
    "--evaluation", type=LOCAL_ARTIFACT, metavar="FILE", help="An evaluation.json of the run."
)
@click.option(
    "--full", type=LOCAL_ARTIFACT, metavar="RUN", help="A run on everything: what was saved?"
)
@click.option(
    "--by",
    metavar="COLUMN",
    help="Tells the sources of the data apart.  [default: as selected, or what looks like a source]",
)
@click.option("-f", "--force", is_flag=True, help="Replace a file that is no report.")
@click.pass_obj
def command(reporter: Any, source: Path, output: Path, **settings: Any) -> None:
    """Write one page about a run and its data, or about a comparison, that needs nothing but itself.

    Of a run: what the data teaches, what was selected and how the mix changed, the plan, the training, the
    evaluation, costs and savings, and where everything came from. What is missing is said.

    \b
    cluster-cli report run/ -o report.html
    cluster-cli report run/ --evaluation evaluation.json --full full/run -o report.html
    cluster-cli report comparison/ -o report.html
    cluster-cli report comparison/ --format md -o - | gh pr comment --body-file -
    """
    from stages.report import report

    report(source, "-" if str(output) == "-" else output, reporter=reporter, **settings)
