"""``cluster-cli select``: arguments and help; the work is ``stages.select``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cluster_cli import options
from stages.select.members import WITHIN
from stages.select.methods import METHODS
from stages.select.quotas import QUOTAS
from stages.select.settings import Settings


class _NumberOr(click.ParamType):
    """A number, or one of a few words."""

    def __init__(self, *words: str) -> None:
        self.words, self.name = words, f"float|{'|'.join(words)}"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | str:
        if value in self.words:
            return str(value)
        try:
            if isinstance(value, bool):  # `fraction = true` of a file is no number
                raise ValueError
            return float(value)
        except (TypeError, ValueError):
            said = self.words[0] if len(self.words) == 1 else f"one of {', '.join(self.words)}"
            self.fail(f"{value!r} is neither a number nor {said}", param, ctx)


@click.command("select")
@click.argument("clusters", type=options.ARTIFACT)
@options.output_option("Selection to write, a JSONL file; - is stdout.")
@click.option(
    "--fraction", type=_NumberOr("auto"), help="Share of the clustered rows to select, or auto."
)
@click.option(
    "--coverage",
    type=float,
    default=0.95,
    show_default=True,
    help="With --fraction auto: how near every example must be to a selected one, of what is reachable.",
)
@click.option(
    "--curve",
    type=options.ARTIFACT,
    help="With --fraction auto: a comparison at several fractions, whose learning curve says how much.",
)
@click.option("--count", type=int, help="Number of examples to select.")
@click.option("--tokens", type=int, help="Prompt and response tokens to select, at most.")
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    default="cluster",
    show_default=True,
    help="cluster is the method itself; the others are what it must beat.",
)
@click.option(
    "--quota",
    type=_NumberOr(*QUOTAS),
    default=Settings.quota,
    show_default=True,
    help="How the budget is shared over clusters; a number is a power of their size: 0 is equal, 0.5 sqrt, "
    "1 proportional.",
)
@click.option(
    "--within",
    type=click.Choice(WITHIN),
    default=Settings.within,
    show_default=True,
    help="Which members of a cluster come first, seen from its centroid.",
)
@click.option(
    "--trim",
    type=float,
    default=Settings.trim,
    show_default=True,
    help="Fraction of outliers to set aside: broken text or rare lessons. With --within farthest: 0.01.",
)
@click.option(
    "--weights/--no-weights",
    default=False,
    show_default=True,
    help="Weight examples so that every cluster counts by its share of all rows.",
)
@click.option(
    "--must-include",
    type=options.PATH,
    help="File of ids or row numbers, one a line, that are selected in any case.",
)
@click.option(
    "--exclude",
    type=options.PATH,
    help="File of ids or row numbers, one a line, that are left out.",
)
@click.option(
    "--min-per-cluster",
    type=int,
    default=0,
    show_default=True,
    help="Distinct examples that every cluster keeps, or all it has.",
)
@click.option(
    "--stratify",
    metavar="FIELD",
    help="Column of the data: quotas within each of its values, and the mix of both kept.",
)
@click.option(
    "--target",
    type=options.ARTIFACT,
    help="Signatures of wanted examples: prefer what teaches the same, all weights 1.",
)
@click.option(
    "--signatures",
    type=options.ARTIFACT,
    help="The map's signatures, if moved; --target and some methods and orders read them.",
)
@options.seed_option
@options.force_option
@options.json_option
@click.pass_obj
def command(reporter: Any, clusters: Path, output: Path, as_json: bool, **settings: Any) -> None:
    """Choose examples from every cluster: CLUSTERS is the output of `cluster-cli cluster`.

    \b
    cluster-cli select clusters.zarr --fraction 0.31 --stratify source -o selection.jsonl
    cluster-cli select clusters.zarr --count 500 --must-include keep.txt -o selection.jsonl

    As the method was published:

    \b
    cluster-cli select clusters.zarr --fraction 0.31 --quota equal --within farthest --weights \\
        -o selection.jsonl
    """
    from stages.select import select

    if str(output) == "-":
        if as_json:
            raise click.UsageError("--json and -o - both want stdout")
        select(clusters, "-", reporter=reporter, **settings)
        return
    options.print_header(select(clusters, output, reporter=reporter, **settings), as_json)
