"""``cluster-cli clean``: arguments, the question and printing; the work is ``stages.clean``."""

from __future__ import annotations

from pathlib import Path

import click

from cluster_cli import pipeline, printing
from cluster_cli.options import PATH


@click.command("clean")
@click.argument("places", type=PATH, nargs=-1, metavar="[FOLDER|CLUSTER.TOML]...")
@click.option("-n", "--dry-run", is_flag=True, help="List only.")
@click.option("-y", "--yes", is_flag=True, help="Remove without asking.")
@click.pass_context
def command(ctx: click.Context, places: tuple[Path, ...], dry_run: bool, yes: bool) -> None:
    """Remove what killed runs left: half-built outputs, stale locks, work folders.

    Looks into the folders named, and into those that a pipeline file writes to; without any, into
    cluster.toml's, or else the current one. A half-built `signatures.zarr.partial` is what `score` would
    go on with. Outputs are never removed, nor anything that a running process holds.

    \b
    cluster-cli clean -n
    """
    from stages.clean import find, remove

    folders = list(dict.fromkeys(folder for place in _places(places) for folder in _in(ctx, place)))
    found = [leftover for folder in folders for leftover in find(folder, ctx.obj)]
    if not found:
        ctx.obj.message("nothing to clean")
        return
    printing.rows([(str(each.path), each.meaning, _bytes(each.size)) for each in found])
    if dry_run:
        return
    if not yes and not _agreed(len(found)):
        ctx.obj.message("nothing removed")
        return
    remove(found)
    ctx.obj.message(f"removed {len(found)}")


def _agreed(count: int) -> bool:
    try:
        return click.confirm(f"remove these {count}?", err=True)
    except click.Abort:
        click.echo(err=True)
        raise click.UsageError("nobody answered; --yes removes without asking") from None


def _places(places: tuple[Path, ...]) -> list[Path]:
    return list(places) or [Path(pipeline.DEFAULT) if Path(pipeline.DEFAULT).exists() else Path()]


def _in(ctx: click.Context, place: Path) -> list[Path]:
    """The folders to look into, relative to where we are."""
    if place.suffix != ".toml":
        return [place]
    with pipeline.opened(ctx, place) as chain:
        folders = [place.parent / output.parent for output in chain.outputs.values()]
    return [folder for folder in folders if folder.is_dir()]


def _bytes(size: int) -> str:
    amount, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
