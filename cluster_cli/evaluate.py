"""``cluster-cli evaluate``: arguments and printing; the work is ``stages.evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cluster_cli import printing
from cluster_cli.options import (
    PATH,
    data_options,
    force_option,
    json_option,
    kept_stdin,
    output_option,
    parse_fields,
    read_template,
    seed_option,
)

_DECIMALS = {"loss": 4, "token_loss": 4}
_TITLES = {"loss": "loss per example", "token_loss": "loss per token"}


@click.command("evaluate")
@click.argument("model", metavar="RUN_OR_MODEL")
@click.option("--data", multiple=True, help="File, glob, folder, hub name, or -; repeatable.")
@output_option("The evaluation.json to write.")
@click.option("--by", multiple=True, metavar="COLUMN", help="Figures per value, too; repeatable.")
@click.option("--generate", is_flag=True, help="Exact match and F1 of greedy answers.")
@click.option(
    "--max-new-tokens",
    type=click.IntRange(1),
    help="Of an answer.  [default: 64, or 512 with --run-code]",
)
@click.option(
    "--choices-column",
    "choices",
    default="choices",
    show_default=True,
    help="Rows that have it are multiple choice, compared by likelihood.",
)
@click.option(
    "--answer-column",
    "answer",
    default="answer",
    show_default=True,
    help="The right choice: index from 0, letter, or text.",
)
@click.option("--run-code", is_flag=True, help="Run greedy programs with their tests: pass@1.")
@click.option(
    "--tests-column", "tests", default="test_list", show_default=True, help="A text or a list."
)
@click.option(
    "--setup-column",
    "setup",
    default="test_setup_code",
    show_default=True,
    help="Code to run before the tests.",
)
@click.option("--show-tests", is_flag=True, help="Put the tests behind the question.")
@click.option("--code-seconds", type=float, default=10.0, show_default=True, help="For a program.")
@click.option("--code-memory", type=int, default=1024, show_default=True, help="MiB for a program.")
@click.option(
    "--allow-network", is_flag=True, help="Run programs also where they cannot be shut in."
)
@click.option(
    "--tasks", help="Of the lm-evaluation-harness, comma-separated; patterns such as mmlu_* too."
)
@click.option("--task-folder", help="Folder of task definitions of your own (YAML).")
@click.option("--task-limit", type=click.IntRange(1), help="First N examples of each task.")
@click.option("--allow-overlap", is_flag=True, help="Count rows that the run was trained on, too.")
@click.option(
    "--max-length", type=click.IntRange(2), help="Tokens per example.  [default: as trained]"
)
@click.option("--chat-template", type=PATH, help="Jinja file.  [default: as trained]")
@click.option(
    "--dtype", default="auto", show_default=True, help="auto, float32, bfloat16, float16."
)
@click.option("--samples", type=int, default=1000, show_default=True, help="Bootstrap resamples.")
@click.option("--ranks", type=click.IntRange(1), default=1, help="Processes to compute with.")
@click.option("--hostfile", type=PATH, help="Machines for the ranks, as DeepSpeed reads it.")
@click.option("--batch-tokens", type=click.IntRange(1), help="Padded tokens in a batch.")
@click.option("--trust-remote-code", is_flag=True, help="Let the model's own code run.")
@data_options
@seed_option
@force_option
@json_option
@click.pass_obj
def command(
    reporter: Any,
    model: str,
    data: tuple[str, ...],
    output: Path,
    tasks: str | None,
    chat_template: Path | None,
    allow_overlap: bool,
    ranks: int,
    hostfile: Path | None,
    batch_tokens: int | None,
    trust_remote_code: bool,
    shape: str,
    fields: tuple[str, ...],
    split: str | None,
    subset: str | None,
    on_bad_row: str,
    limit: int | None,
    force: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Measure RUN_OR_MODEL on data it was not trained on: answer loss, answers, choices, code.

    Every figure comes with its 95 % bootstrap interval over examples. Data are read as the run's
    training data were, unless --format or --field say otherwise.

    \b
    cluster-cli evaluate run/ --data dev.jsonl --by qtype -o evaluation.json
    cluster-cli evaluate run/ --data medmcqa.jsonl --by subject \\
        --field prompt=question --field response=answer -o medmcqa.json
    cluster-cli evaluate run/ --data mbpp.jsonl --run-code --show-tests \\
        --field prompt=text --field response=code -o mbpp.json
    """
    from formats.data import DataOptions
    from stages.evaluate import EvaluateSettings, evaluate

    paths = kept_stdin(data, output)
    options = DataOptions(
        format=shape,
        fields=parse_fields(fields),
        split=split,
        subset=subset,
        on_bad_row=on_bad_row,
        limit=limit,
    )
    settings["tasks"] = tuple(name for name in (tasks or "").split(",") if name.strip())
    header = evaluate(
        model,
        paths,
        output,
        settings=EvaluateSettings(chat_template=read_template(chat_template), **settings),
        options=options,
        ranks=ranks,
        hostfile=hostfile,
        batch_tokens=batch_tokens,
        allow_overlap=allow_overlap,
        trust_remote_code=trust_remote_code,
        force=force,
        reporter=reporter,
    )
    if as_json:
        whole = header.to_json()
        printing.as_json({name: part for name, part in whole.items() if name != "examples"})
    else:
        print_results(header.extra["results"], header.extra["tasks"])


def print_results(results: dict[str, Any], tasks: dict[str, Any]) -> None:
    """The figures as a table: one line for all examples, then one per group, the largest first."""
    metrics = list(results["overall"])
    if metrics:
        lines = [["", "examples", *(_TITLES.get(name, name.replace("_", " ")) for name in metrics)]]
        lines.append(_line("all", results["overall"], metrics))
        for column, values in results["by"].items():
            ordered = sorted(values.items(), key=lambda item: (-_examples(item[1]), item[0]))
            lines += [_line(f"{column} {value}", found, metrics) for value, found in ordered]
        printing.rows(lines)
    for task, figures in tasks.items():
        cells = [f"{n} {v:.4f}" for n, v in figures.items() if type(v) is float]
        printing.rows([[task, ", ".join(cells)]])


def _line(name: str, figures: dict[str, Any], metrics: list[str]) -> list[str]:
    short = name if len(name) <= 40 else name[:37] + "..."
    return [short, f"{_examples(figures):,}", *(_cell(m, figures.get(m)) for m in metrics)]


def _examples(figures: dict[str, Any]) -> int:
    return max((figure["examples"] for figure in figures.values()), default=0)


def _cell(metric: str, figure: dict[str, Any] | None) -> str:
    if figure is None:
        return "-"
    places = _DECIMALS.get(metric, 3)
    text = f"{figure['value']:.{places}f}"
    if figure["low"] is None:
        return text
    return f"{text} [{figure['low']:.{places}f}, {figure['high']:.{places}f}]"
