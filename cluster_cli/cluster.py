"""``cluster-cli cluster``: arguments and help; the work is ``stages.cluster``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cluster_cli import options


class _Clusters(click.ParamType):
    name = "K|auto"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        if value == "auto" or isinstance(value, int):
            return value
        if not str(value).isdigit() or int(value) < 1:
            self.fail(f"{value!r} is neither a positive number nor auto", param, ctx)
        return int(value)


@click.command("cluster")
@click.argument("signatures", type=options.ARTIFACT)
@options.output_option("Cluster map to write, a Zarr folder.")
@click.option(
    "-k",
    "--clusters",
    type=_Clusters(),
    default="auto",
    show_default=True,
    help="Number of clusters, or auto.",
)
@click.option(
    "--centre/--no-centre",
    default=True,
    show_default=True,
    help="Take away the mean direction first: what every example teaches.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=50_000,
    show_default=True,
    help="Examples to fit on, at most; all are assigned.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Rounds of k-means over all examples, where the sample was only a part of them.",
)
@click.option(
    "--memory",
    type=click.FloatRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    metavar="GIB",
    help="Memory for the sample.",
)
@click.option(
    "--reuse",
    type=options.ARTIFACT,
    help="Older cluster map whose clusters and numbers are kept; drift is reported.",
)
@click.option("--extend", is_flag=True, help="With --reuse: open new clusters for what fits none.")
@click.option("--refit", is_flag=True, help="With --reuse: fit again, starting from its centroids.")
@click.option("--ranks", type=click.IntRange(1), default=1, help="Processes to compute with.")
@click.option(
    "--hostfile", type=options.PATH, help="Machines for the ranks, as DeepSpeed reads it."
)
@options.seed_option
@options.force_option
@options.json_option
@click.pass_obj
def command(
    reporter: Any,
    signatures: Path,
    output: Path,
    clusters: Any,
    centre: bool,
    sample: int,
    rounds: int,
    memory: float,
    reuse: Path | None,
    extend: bool,
    refit: bool,
    ranks: int,
    hostfile: Path | None,
    seed: int,
    force: bool,
    as_json: bool,
) -> None:
    """Group examples by what they teach: SIGNATURES is the output of `cluster-cli score`.

    \b
    cluster-cli cluster signatures.zarr -o clusters.zarr
    cluster-cli cluster new.zarr --reuse clusters.zarr -o new-clusters.zarr   # the same lessons
    torchrun --nproc-per-node 4 -m cluster_cli cluster s.zarr -o c.zarr       # or --ranks 4
    """
    from stages.cluster import cluster

    header = cluster(
        signatures,
        output,
        clusters=clusters,
        centre=centre,
        seed=seed,
        sample=sample,
        rounds=rounds,
        memory=int(memory * 2**30),
        reuse=reuse,
        extend=extend,
        refit=refit,
        ranks=ranks,
        hostfile=hostfile,
        force=force,
        reporter=reporter,
    )
    options.print_header(header, as_json)
