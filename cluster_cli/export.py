"""``cluster-cli export``: arguments and help; the work is ``stages.export``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cluster_cli import options
from cluster_cli.options import ARTIFACT, PATH

KINDS = ("trl", "axolotl", "llamafactory", "messages", "parquet")


@click.command("export")
@click.argument("source", type=ARTIFACT)
@click.option(
    "--to",
    type=click.Choice(KINDS),
    required=True,
    help="For which trainer; messages: a JSONL file of conversations; parquet: the rows alone.",
)
@options.output_option("The folder (trl, axolotl, llamafactory) or file; - is stdout.")
@click.option(
    "--data",
    multiple=True,
    type=PATH,
    help="Where a data file is now, in the order given to score; repeatable.",
)
@click.option(
    "--repeat",
    is_flag=True,
    help="For trainers without weights: rows as often as their weight says, on average; seeded.",
)
@click.option(
    "--copies",
    type=float,
    default=1.0,
    show_default=True,
    help="With --repeat: of a row of weight 1, on average.",
)
@click.option("--epoch", type=click.IntRange(min=0), help="This epoch of an allocation alone.")
@click.option(
    "--deal",
    type=click.Choice(["batches", "rows"]),
    default="batches",
    show_default=True,
    help="What the trainer's sampler gives to ranks in turn: batches, as accelerate; rows, as PyTorch's "
    "DistributedSampler.",
)
@options.seed_option
@click.option("-f", "--force", is_flag=True, help="Replace an existing file.")
@options.json_option
@click.pass_obj
def command(reporter: Any, source: Path, output: Path, as_json: bool, **settings: Any) -> None:
    """Write the rows of SOURCE, a selection or an allocation, for another trainer.

    Every column of the data is kept; weight, cluster and id are added. The rows of an allocation come in
    the order in which a sampler that does not shuffle deals them out as planned, beside the settings that
    see to it.

    \b
    cluster-cli export allocation/ --to trl -o exported/
    cluster-cli export selection.jsonl --to messages -o - | head
    """
    from stages.export import export

    if str(output) == "-" and as_json:
        raise click.UsageError("--json and -o - both want stdout")
    target = "-" if str(output) == "-" else output
    header = export(source, target, reporter=reporter, **settings)
    options.print_header(header, as_json)
