"""``cluster-cli compare``: arguments and printing; the work is ``stages.compare``."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import click

from cluster_cli import pipeline, printing, settings
from cluster_cli.options import PATH, json_option, parse_fields
from formats.errors import SettingError

DEFAULT_ARMS = "full,random,cluster"


@click.command("compare")
@pipeline.file_argument
@click.option("--data", multiple=True, help="Data to evaluate on, never trained on; repeatable.")
@click.option("--arms", default=DEFAULT_ARMS, show_default=True, help="Comma-separated; see below.")
@click.option(
    "--arm",
    "custom",
    multiple=True,
    metavar="NAME=SECTION.KEY=VALUE,...",
    help="An arm of your own: the method with other settings; repeatable.",
)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Per arm.")
@click.option(
    "--fraction",
    "fractions",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    multiple=True,
    help="Instead of the file's budget; several make a learning curve.",
)
@click.option(
    "--budget",
    type=click.Choice(("rows", "tokens")),
    default="rows",
    show_default=True,
    help="What all arms have in equal measure.",
)
@click.option("--equal-steps", is_flag=True, help="Every arm again, with as many steps as `full`.")
@click.option("--metric", default="loss", show_default=True, help="Decides what is better.")
@click.option(
    "--margin",
    type=float,
    default=0.01,
    show_default=True,
    help="Still as good as `full`: share of a loss, or points / 100 of a share.",
)
@click.option("--by", multiple=True, metavar="COLUMN", help="Figures per value, too; repeatable.")
@click.option("--generate", is_flag=True, help="Exact match and F1 of greedy answers.")
@click.option("--max-new-tokens", type=click.IntRange(1), help="Of an answer.")
@click.option("--field", "fields", multiple=True, metavar="ROLE=COLUMN", help="Of the --data.")
@click.option("--proxy", help="The model of the arm cluster-proxy.")
@click.option(
    "--checkpoint", "checkpoints", multiple=True, help="A model of the arm s2l, in training order."
)
@click.option("--ranks", type=click.IntRange(1), default=1, help="Processes to evaluate with.")
@click.option("--keep-models", is_flag=True, help="Leave the trained weights on disk.")
@click.option("-o", "--output", type=PATH, required=True, help="The folder of the comparison.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    file: Path | None,
    data: tuple[str, ...],
    arms: str,
    custom: tuple[str, ...],
    seeds: int,
    fractions: tuple[float, ...],
    budget: str,
    equal_steps: bool,
    metric: str,
    margin: float,
    by: tuple[str, ...],
    generate: bool,
    max_new_tokens: int | None,
    fields: tuple[str, ...],
    proxy: str | None,
    checkpoints: tuple[str, ...],
    ranks: int,
    keep_models: bool,
    output: Path,
    as_json: bool,
) -> None:
    """Train on several selections of the same data, and say which is better and what it cost.

    Each arm is the chain of CLUSTER.TOML with a few settings changed, run once per seed; whatever two arms
    have in common is made once. Interrupt it at any time: it goes on where it was.

    \b
    cluster-cli compare cluster.toml --data dev.jsonl -o comparison/
    cluster-cli compare --data dev.jsonl --arms full,random,loss,cluster,cluster-published \\
        --seeds 5 --fraction 0.1 --fraction 0.31 -o comparison/
    cluster-cli compare --data dev.jsonl --arm tuned=select.quota=equal,select.weights=true \\
        -o comparison/

    \b
    Arms: full, random, balanced-random, proportional, loss, loss-mid, norm, k-centre, facility, tagcos,
    embedding, s2l, cluster, and changes of the method: cluster-published, cluster-head,
    cluster-gradient, cluster-warm, cluster-proxy, cluster-no-centre, cluster-equal, cluster-mild,
    cluster-proportional, cluster-neyman, cluster-weighted, cluster-farthest, cluster-nearest,
    cluster-diverse, cluster-trimmed, cluster-random-allocation, cluster-balanced-order.
    """
    from formats.comparison import Comparison as Written
    from formats.data import DataOptions
    from stages.compare import Comparison, compare, find_arms
    from stages.compare.arms import with_equal_steps
    from stages.evaluate import EvaluateSettings

    output = output.absolute()
    data = tuple(_absolute(path) for path in data)
    models = [_absolute(path) for path in checkpoints]
    found = find_arms([a for a in arms.split(",") if a], custom, proxy and _absolute(proxy), models)
    found = with_equal_steps(found) if equal_steps else found
    with pipeline.sections_of(ctx, file) as (path, sections):
        trials = _trials(ctx, path, sections, found, seeds, fractions)
        compare(
            Comparison(
                trials,
                data,
                EvaluateSettings(by=by, generate=generate, max_new_tokens=max_new_tokens),
                DataOptions(fields=parse_fields(fields)) if fields else DataOptions(),
                metric=metric,
                margin=margin,
                budget=budget,
                ranks=ranks,
                keep_models=keep_models,
            ),
            output,
            reporter=ctx.obj,
        )
    written = Written.open(output)
    if as_json:
        printing.as_json({"arms": written.arms, "verdicts": written.verdicts})
        return
    printing.rows(_table(written.arms, metric))
    click.echo()
    for sentence in written.verdicts:
        click.echo(sentence)


def _absolute(path: str) -> str:
    """A local path seen from anywhere; the chain runs in its file's folder."""
    return str(Path(path).absolute()) if Path(path).exists() else path


def _trials(
    ctx: click.Context,
    path: str,
    sections: settings.Sections,
    arms: list[Any],
    seeds: int,
    fractions: tuple[float, ...],
) -> list[Any]:
    """One trial per seed, fraction and arm, seeds outermost: a killed comparison has whole seeds."""
    from stages.compare import Trial
    from stages.compare.arms import FULL, merge, seeded

    trials, problems = [], []
    for seed in range(seeds):
        for number, fraction in enumerate(fractions or (None,)):
            for arm in arms:
                if arm.name == FULL and number:
                    continue  # all rows are all rows
                problems += _overridden(ctx, arm.name, merge(arm.changes, seeded(seed)))
                changed = merge(copy.deepcopy(sections), arm.changes, seeded(seed))
                _set_budget(changed["select"], arm.name == FULL, fraction)
                try:
                    chain = pipeline.from_sections(ctx, path, changed)
                except SettingError as error:
                    problems += [f"arm {arm.name}: {error}"]
                    continue
                trials.append(Trial(arm, seed, fraction, chain))
    if problems:
        distinct = list(dict.fromkeys(problems))
        raise SettingError("; ".join(distinct), problems=distinct)
    return trials


def _overridden(ctx: click.Context, arm: str, changes: dict[str, dict[str, Any]]) -> list[str]:
    """``--set`` and the environment stand above the file: they would undo what an arm changes."""
    prefix = ctx.find_root().auto_envvar_prefix
    names = [(s, key) for s, values in changes.items() for key in values]
    return [
        f"arm {arm} changes {section}.{key}, which --set or {variable} has fixed; take that back"
        for section, key in names
        if (variable := f"{prefix}_{section}_{key}".upper()) in os.environ
    ]


def _set_budget(select: dict[str, Any], everything: bool, fraction: float | None) -> None:
    if everything or fraction is not None:
        for name in ("fraction", "count", "tokens", "curve"):
            select.pop(name, None)
    if fraction is not None and not everything:
        select["fraction"] = fraction


def _table(arms: list[dict[str, Any]], metric: str) -> list[list[str]]:
    from formats.evaluation import LOSSES

    head = ["arm", "rows", "tokens", metric, "± seeds", "worst group", "of full", "train", "select"]
    lines = [[*head, "net saving"]]
    for arm in arms:
        quality = arm["quality"]
        worst = [q["mean"] for name, q in quality.items() if name.startswith(f"{metric}, worst")]
        full = arm["against"].get("full", {})
        digits = 4 if metric in LOSSES else 3
        deviation = quality[metric]["deviation"]
        net = arm.get("savings", {}).get("net_share")
        lines.append(
            [
                arm["arm"],
                f"{arm['rows']:,}",
                f"{arm['training_tokens']:,.0f}",
                f"{quality[metric]['mean']:.{digits}f}",
                "" if deviation is None else f"{deviation:.{digits}f}",
                f"{worst[0]:.{digits}f}" if worst else "",
                f"{full['retention']:.1%}" if full.get("retention") else "",
                _time(arm["training_seconds"]),
                _time(arm["selecting_seconds"]),
                "" if net is None else f"{net:+.1%}",
            ]
        )
    return lines


def _time(seconds: float) -> str:
    from stages.savings import as_time

    return as_time(seconds / 3600)
