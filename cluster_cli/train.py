"""``cluster-cli train``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cluster_cli.options import (
    LOCAL_ARTIFACT,
    PATH,
    force_option,
    json_option,
    output_option,
    print_header,
    seed_option,
)


@click.command("train")
@click.argument("allocation", type=LOCAL_ARTIFACT)
@click.option("-m", "--model", help="Folder, GGUF file or Hugging Face name.")
@click.option(
    "--init-from",
    type=LOCAL_ARTIFACT,
    metavar="RUN",
    help="Go on from the model of a finished run, in place of --model.",
)
@output_option("The run folder to write.")
@click.option(
    "--learning-rate", type=float, help="The highest rate.  [default: 2e-5, or DeepSpeed's file]"
)
@click.option("--warmup", type=float, default=0.03, show_default=True, help="Part of the steps.")
@click.option("--weight-decay", type=float, help="Of matrices.  [default: 0, or DeepSpeed's file]")
@click.option(
    "--schedule",
    type=click.Choice(["cosine", "linear", "constant"]),
    default="cosine",
    show_default=True,
    help="How the rate falls after the warm-up.",
)
@click.option(
    "--clip", type=float, help="Gradient norm to clip at, 0 for none.  [default: 1.0, or the file]"
)
@click.option(
    "--zero-stage",
    type=click.IntRange(0, 3),
    help="What DeepSpeed spreads over the ranks.  [default: 2, or the file]",
)
@click.option(
    "--offload",
    type=click.Choice(["optimizer", "parameters"]),
    help="Keep the optimizer's state, or the weights too, in the machine's memory.",
)
@click.option(
    "--deepspeed",
    type=PATH,
    metavar="FILE",
    help="DeepSpeed configuration (JSON); batch sizes come from the allocation.",
)
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
    default="auto",
    show_default=True,
    help="auto: bfloat16 on a GPU that has it, else float32.",
)
@click.option(
    "--gradient-checkpointing", is_flag=True, help="Compute activations twice, hold fewer."
)
@click.option(
    "--max-length", type=click.IntRange(min=2), help="Tokens per example.  [default: as scored]"
)
@click.option(
    "--data",
    multiple=True,
    type=PATH,
    help="Where a data file is now, in the order given to score; repeatable.",
)
@click.option(
    "--loss-per",
    type=click.Choice(["example", "token"]),
    default="example",
    show_default=True,
    help="What counts alike; weights multiply either.",
)
@click.option(
    "--lora", type=click.IntRange(min=1), metavar="RANK", help="Train LoRA adapters of this rank."
)
@click.option("--lora-alpha", type=float, help="Their scale.  [default: twice the rank]")
@click.option(
    "--lora-dropout",
    type=float,
    default=0.0,
    show_default=True,
    help="Part of the adapters' inputs that is dropped while training.",
)
@click.option(
    "--quantize",
    type=click.Choice(["4bit"]),
    help="With --lora: hold the frozen weights so (QLoRA; needs a CUDA GPU).",
)
@click.option(
    "--eval-data", multiple=True, type=PATH, help="Evaluate on this file too; repeatable."
)
@click.option(
    "--eval-every",
    type=click.IntRange(min=1),
    metavar="STEPS",
    help="Evaluate so often, besides before and after.",
)
@click.option(
    "--patience",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after N evaluations that bring nothing better.",
)
@click.option("--keep-best", is_flag=True, help="Keep the model of the best evaluation.")
@click.option(
    "--checkpoint-every", type=click.IntRange(min=1), metavar="STEPS", help="Checkpoint so often."
)
@click.option(
    "--checkpoint-minutes", type=float, metavar="MINUTES", help="Checkpoint so often, by the clock."
)
@click.option(
    "--keep", type=click.IntRange(min=1), default=2, show_default=True, help="Checkpoints to keep."
)
@click.option("--resume", is_flag=True, help="Go on where a stopped or killed run left off.")
@click.option("--hostfile", type=PATH, help="Machines to run on: lines `NAME slots=N`.")
@seed_option
@force_option
@json_option
@click.pass_obj
def command(
    reporter: Any, allocation: Path, model: str | None, output: Path, as_json: bool, **settings: Any
) -> None:
    """Fine-tune MODEL on ALLOCATION with one DeepSpeed process per rank.

    \b
    cluster-cli train allocation/ --model ./base -o run/
    cluster-cli train allocation/ --model ./base --lora 16 -o run/

    Inside torchrun, srun or the deepspeed command it is one of the ranks:

    \b
    torchrun --nproc-per-node 4 -m cluster_cli train allocation/ --model MODEL -o run/
    """
    from stages.train import train
    from stages.workers import world

    header = train(allocation, model, output, reporter=reporter, **settings)
    if world().rank == 0:
        print_header(header, as_json)
