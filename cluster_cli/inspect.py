"""``cluster-cli inspect``: arguments and printing; the work is ``stages.inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cluster_cli import printing
from cluster_cli.options import ARTIFACT, PATH

_SHARES = 5  # values of the counted column on a card; --json has all


@click.command("inspect")
@click.argument("artifact", type=ARTIFACT)
@click.option(
    "--rows", type=click.IntRange(min=0), default=5, show_default=True, help="First rows to show."
)
@click.option(
    "--clusters",
    "most",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Clusters to show of a cluster map; --json has all.",
)
@click.option(
    "--examples",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Typical and unusual examples of each cluster.",
)
@click.option("--by", metavar="COLUMN", help="Column of the data to count in each cluster.")
@click.option(
    "--plot",
    type=PATH,
    metavar="PICTURE",
    help="Draw a cluster map in two dimensions: .png, .svg or .pdf.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON on stdout.")
@click.pass_obj
def command(
    reporter: Any,
    artifact: Path,
    rows: int,
    most: int,
    examples: int,
    by: str | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Show what ARTIFACT is, what it was made from, its parameters, statistics and first rows.

    \b
    cluster-cli inspect clusters.zarr                  # a card for every cluster
    cluster-cli inspect clusters.zarr --by topic --plot map.png
    cluster-cli inspect selection.jsonl --json | jq .stats
    """
    from stages.inspect import inspect

    found = inspect(artifact, rows=rows, examples=examples, by=by, picture=plot)
    if plot:
        reporter.message(f"drew {plot}")
    if as_json:
        printing.as_json(found)
        return
    _print(found)
    for card in found.get("clusters", [])[:most]:
        _print_card(card, found["mixed_by"])
    if hidden := len(found.get("clusters", [])[most:]):
        click.echo(f"\nand {hidden:,} smaller clusters; --clusters {most + hidden} shows them")
    if missing := found.get("examples_missing"):
        click.echo(f"\nthe examples' texts cannot be shown: {missing}")


def _print(found: dict[str, Any]) -> None:
    from stages.inspect.report import as_lines

    click.echo(
        f"{found['path']}: {found['kind']}, format {found['format_version']}, "
        f"made by {found['created_by']}"
    )
    click.echo(f"key {found['key']}")
    click.echo("\nmade from")
    _print_origin(found["origin"], "  ")
    for title in ("params", "stats"):
        click.echo({"params": "\nparameters", "stats": "\nstatistics"}[title])
        printing.rows(as_lines(found[title]), "  ")
    click.echo("\nfirst rows" if found["rows"] else "")
    _print_rows(found["rows"])


def _print_origin(entries: list[dict[str, Any]], indent: str) -> None:
    for entry in entries:
        rows = f", {entry['rows']:,} rows" if entry.get("rows") is not None else ""
        click.echo(f"{indent}{entry['path']} ({entry['kind']}{rows}, {entry['state']})")
        _print_origin(entry["origin"], indent + "  ")


def _print_rows(rows: list[dict[str, Any]]) -> None:
    if rows:
        names = list(rows[0])
        cells = [[_cell(row.get(name)) for name in names] for row in rows]
        printing.rows([names, *cells], "  ")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "-" if value is None else str(value)
    return text if len(text) <= 36 else text[:33] + "..."


def _print_card(card: dict[str, Any], mixed_by: str | None) -> None:
    click.echo(
        f"\ncluster {card['cluster']}: {card['size']:,} rows ({card['share']:.1%}), "
        f"{card['tokens']:,} tokens, mean similarity {_cell(card['mean_similarity'])}, "
        f"mean loss {_cell(card['mean_loss'])}"
    )
    if card["mix"]:
        shares = [f"{part['value']} {part['share']:.0%}" for part in card["mix"][:_SHARES]]
        more = len(card["mix"]) - len(shares)
        click.echo(f"  {mixed_by}: {', '.join(shares)}" + (f" and {more} more" if more else ""))
    for title in ("typical", "unusual"):
        lines = [
            (title, f"row {example['row']}", f"{example['similarity']:.3f}", example["text"] or "")
            for example in card[title]
        ]
        if lines:
            printing.rows(lines, "  ")
