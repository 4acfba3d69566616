"""``cluster-cli allocate``: arguments and help; the work is ``stages.allocate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cluster_cli import options
from stages.allocate.strategies import STRATEGIES


def _number(flag: str, help_text: str) -> Any:
    return click.option(
        flag, type=click.IntRange(min=1), default=1, show_default=True, help=help_text
    )


@click.command("allocate")
@click.argument("selection", type=options.ARTIFACT)
@options.output_option("Folder to write, one file per rank.")
@click.option("--ranks", type=int, required=True, help="Data-parallel workers, 1 to 4096.")
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default="disjoint",
    show_default=True,
    help="disjoint: each cluster on one rank; interleaved: dealt over all; balanced: disjoint, and "
    "every batch like the whole; random: the usual shuffle.",
)
@_number("--micro-batch", "Rows a rank takes through the model at once.")
@click.option(
    "--max-tokens-per-micro-batch",
    type=click.IntRange(min=1),
    help="Instead of a number of rows: as many as have at most so many tokens, padding included.",
)
@_number("--accumulation", "Micro-batches per optimizer step.")
@_number("--epochs", "Passes over the selection, each in another order.")
@click.option("--rotate", is_flag=True, help="Move clusters to the next rank from epoch to epoch.")
@click.option(
    "--signatures",
    type=options.ARTIFACT,
    help="Measure the plan in signature space too; balanced finds them unless they were moved.",
)
@options.seed_option
@options.force_option
@options.json_option
@click.pass_obj
def command(reporter: Any, selection: Path, output: Path, as_json: bool, **settings: Any) -> None:
    """Plan which rank trains on what, and when: SELECTION is the output of `cluster-cli select`.

    \b
    cluster-cli allocate selection.jsonl --ranks 4 --micro-batch 8 --epochs 3 -o allocation/
    """
    from stages.allocate import allocate

    header = allocate(selection, output, reporter=reporter, **settings)
    options.print_header(header, as_json)
