"""``cluster-cli score``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from cluster_cli.options import (
    ARTIFACT,
    PATH,
    data_options,
    force_option,
    json_option,
    kept_stdin,
    output_option,
    parse_fields,
    print_header,
    read_template,
    seed_option,
)


@click.command("score")
@click.argument("data", nargs=-1, required=True)
@click.option(
    "-m", "--model", required=True, help="Model folder, .gguf file, or Hugging Face name."
)
@output_option("The signatures.zarr to write.")
@click.option(
    "--kind",
    type=click.Choice(["gradient", "head", "embedding", "loss", "trajectory"]),
    default="gradient",
    show_default=True,
    help="Gradients of all layers; head: forward only; the others are controls.",
)
@click.option("--layers", default="all", show_default=True, help="all, last:N, or a pattern.")
@click.option(
    "--rank",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Columns each side of a layer's gradient is projected to, before the sketch.",
)
@click.option(
    "--dims",
    type=click.IntRange(1),
    default=4096,
    show_default=True,
    help="Numbers kept of each signature, two bytes each.",
)
@click.option(
    "--max-length",
    type=click.IntRange(2),
    default=1024,
    show_default=True,
    help="Tokens per example; longer ones are cut.",
)
@click.option(
    "--chat-template", type=PATH, help="Jinja file used instead of the tokenizer's template."
)
@click.option(
    "--dtype", default="auto", show_default=True, help="auto, float32, bfloat16, float16."
)
@click.option("--proxy", help="A smaller model to score with; --model then only counts tokens.")
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    help="A model of the trajectory, in training order; repeatable.",
)
@click.option(
    "--warmup-fraction",
    type=float,
    default=0.0,
    show_default=True,
    help="Train a copy of the model on this part of the rows first.",
)
@click.option(
    "--warmup", type=click.Choice(["full", "lora"]), default="full", help="How the copy is trained."
)
@click.option(
    "--allow-partial", is_flag=True, help="Go on when most of the model cannot be hooked."
)
@click.option(
    "--reuse",
    type=ARTIFACT,
    multiple=True,
    help="Another signatures.zarr of the same space to copy rows from; repeatable.",
)
@click.option("--ranks", type=click.IntRange(1), default=1, help="Processes to compute with.")
@click.option("--hostfile", type=PATH, help="Machines for the ranks, as DeepSpeed reads it.")
@click.option("--batch-tokens", type=click.IntRange(1), help="Padded tokens in a batch.")
@click.option("--block-rows", type=click.IntRange(1), help="Rows in a stored block.")
@click.option("--trust-remote-code", is_flag=True, help="Let the model's own code run.")
@click.option(
    "--meter",
    type=click.IntRange(20),
    help="Compare settings with exact gradients on so many rows, on stdout; write nothing.",
)
@click.option(
    "--goal", type=float, default=0.9, show_default=True, help="Correlation the meter asks for."
)
@click.option("-n", "--dry-run", is_flag=True, help="Say what it would cost; write nothing.")
@data_options
@seed_option
@force_option
@json_option
@click.pass_obj
def command(
    reporter: Any,
    data: tuple[str, ...],
    model: str,
    output: Path,
    shape: str,
    fields: tuple[str, ...],
    split: str | None,
    subset: str | None,
    on_bad_row: str,
    limit: int | None,
    chat_template: Path | None,
    proxy: str | None,
    checkpoints: tuple[str, ...],
    allow_partial: bool,
    reuse: tuple[Path, ...],
    ranks: int,
    hostfile: Path | None,
    batch_tokens: int | None,
    block_rows: int | None,
    trust_remote_code: bool,
    meter: int | None,
    goal: float,
    dry_run: bool,
    force: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Measure what each example teaches: one projected gradient direction per row.

    DATA are JSONL, JSON, CSV, Parquet or Arrow files (.gz and .zst too), globs, folders, Hugging Face
    dataset names, or - for JSONL on stdin.

    \b
    cluster-cli score train.jsonl --model ./base -o signatures.zarr
    cluster-cli score data.csv --field prompt=QUESTION --field response=ANSWER -m ./base -o s.zarr
    """
    from formats.data import DataOptions
    from stages.score.stage import ScoreSettings, measure_fidelity, score

    paths = kept_stdin(data, output)
    options = DataOptions(
        format=shape,
        fields=parse_fields(fields),
        split=split,
        subset=subset,
        on_bad_row=on_bad_row,
        limit=limit,
    )
    chosen = ScoreSettings(chat_template=read_template(chat_template), **settings)
    if meter:
        result = measure_fidelity(
            paths,
            proxy or model,
            settings=chosen,
            options=options,
            sample=meter,
            goal=goal,
            trust_remote_code=trust_remote_code,
            reporter=reporter,
        )
        _print_meter(result, as_json)
        return
    header = score(
        paths,
        model,
        output,
        settings=chosen,
        options=options,
        proxy=proxy,
        checkpoints=checkpoints,
        allow_partial=allow_partial,
        reuse=reuse,
        ranks=ranks,
        hostfile=hostfile,
        batch_tokens=batch_tokens,
        block_rows=block_rows,
        trust_remote_code=trust_remote_code,
        dry_run=dry_run,
        force=force,
        reporter=reporter,
    )
    print_header(header, as_json)


def _print_meter(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result, indent=1))
        return
    click.echo("signature             correlation  neighbours  cost of a training step")
    for line in result["candidates"]:
        mark = "  <- recommended" if line is result["recommended"] else ""
        click.echo(
            f"{line['signature']:<20}  {line['correlation']:>11.3f}  {line['neighbours']:>10.3f}"
            f"  {line['cost']:>23.2f}{mark}"
        )
    click.echo("a step on half of a cluster: fall of the loss of its other half, and of outsiders")
    for lesson in result["lessons"]:
        click.echo(f"{lesson['members']:>12.4f} {lesson['others']:>12.4f} nats")
