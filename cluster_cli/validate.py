"""``cluster-cli validate``: arguments and printing; the work is ``stages.validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cluster_cli.options import ARTIFACT


@click.command("validate")
@click.argument("artifacts", type=ARTIFACT, nargs=-1, required=True, metavar="ARTIFACT...")
@click.pass_obj
def command(reporter: Any, artifacts: tuple[Path, ...]) -> None:
    """Read every ARTIFACT whole: checksums, shapes, and what must hold.

    The weights of a selection average 1, an allocation takes every selected row once per epoch, and so
    on. Exit code 1 and one line that names file and problem when something is wrong.

    \b
    cluster-cli validate work/*.zarr work/selection.jsonl work/allocation
    """
    from formats.kinds import artifact_path
    from stages.validate import validate

    for path in artifacts:
        reporter.message(f"{artifact_path(path)} is whole: {validate(path)}")
