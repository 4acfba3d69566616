"""A run in few words: the paragraph at the top, the key figures, and a line per stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from formats.evaluation import Evaluation
from stages.report import costs, numbers
from stages.report.document import Figure, Table
from stages.report.measured import main_metric
from stages.report.subject import Subject
from stages.savings import as_time


def name(subject: Subject) -> str:
    """The run's folder and the one it is in, since most runs are called ``run``."""
    path = subject.chain.need("run").path.resolve()
    return "/".join(path.parts[1:][-2:])


def lead(subject: Subject) -> str:
    """What this is, in plain words, as far as it is known."""
    chain = subject.chain
    run, chosen = chain.stats("run"), chain.stats("selection")
    said = []
    if chosen:
        said.append(
            f"Of {numbers.count(chosen['clusterable'])} training rows, {numbers.count(chosen['selected'])} "
            f"({numbers.share(chosen['fraction'])}) were selected{_how(subject)}."
        )
    ranks, steps = numbers.several(run["world_size"], "rank"), numbers.several(run["steps"], "step")
    said.append(
        f"A model was then trained on {'them' if chosen else 'a selection that is not there'} for {steps} "
        f"on {ranks}, which took {as_time(run['train_seconds'] / 3600)}; the training loss went from "
        f"{run['first_loss']:.3f} to {run['last_loss']:.3f}."
    )
    if subject.saved:
        said.append(
            f"Training on everything takes {as_time(subject.saved.full_hours)}; with selecting counted "
            f"{as_time(abs(subject.saved.net_hours))} "
            f"{'were saved' if subject.saved.net_hours > 0 else 'were lost'}."
        )
    if subject.evaluation is None:
        said.append(
            "Whether the model is as good as one trained on everything is not measured here."
        )
    return " ".join(said)


def _how(subject: Subject) -> str:
    params = subject.chain.need("selection").header.params
    clusters = subject.chain.stats("clusters").get("clusters")
    if params.get("method") != "cluster" or params.get("target"):
        return f" by the method {params.get('method')}" + (
            ", aimed at wanted examples" if params.get("target") else ""
        )
    lessons = f" {clusters:,}" if clusters else " the"
    weighed = (
        ", and weighted so that the mix of the data stays what it was" if params["weights"] else ""
    )
    return (
        f" from{lessons} lessons, groups of rows that move the model alike, with {params['quota']} quotas"
        f"{weighed}"
    )


def figures(subject: Subject) -> list[Figure]:
    """The key figures, as far as they are known."""
    found = [*_lessons(subject), *_selected(subject), *_training(subject)]
    if subject.evaluation is not None:
        found += _quality(subject.evaluation)
    if subject.saved is not None:
        part = numbers.share(subject.saved.net_hours / subject.saved.full_hours)
        note = f"{as_time(subject.saved.net_hours)}, selecting counted"
        found.append(Figure("Net saving", part, note))
    return found


def _lessons(subject: Subject) -> list[Figure]:
    stats = subject.chain.stats("clusters")
    if not stats:
        return []
    sizes = f"{numbers.count(stats['smallest'])} to {numbers.count(stats['largest'])} rows"
    return [Figure("Lessons", numbers.count(stats["clusters"]), sizes)]


def _selected(subject: Subject) -> list[Figure]:
    stats = subject.chain.stats("selection")
    if not stats:
        return []
    rows = f"{numbers.count(stats['selected'])} of {numbers.count(stats['clusterable'])}"
    tokens = f"{numbers.share(stats['tokens_fraction'])} of the tokens"
    effective = numbers.count(stats["effective_sample_size"])
    return [
        Figure("Rows selected", numbers.share(stats["fraction"]), f"{rows}, {tokens}"),
        Figure(
            "Effective sample size", effective, f"{numbers.share(stats['ess_fraction'])} of them"
        ),
    ]


def _training(subject: Subject) -> list[Figure]:
    stats = subject.chain.stats("run")
    steps, ranks = (
        numbers.several(stats[n], w) for n, w in (("steps", "step"), ("world_size", "rank"))
    )
    took = as_time(stats["train_seconds"] / 3600)
    return [
        Figure("Training", took, f"{steps}, {ranks}, {stats['device']}"),
        Figure("Training loss", f"{stats['last_loss']:.3f}", f"from {stats['first_loss']:.3f}"),
    ]


def _quality(evaluation: Evaluation) -> list[Figure]:
    metric = main_metric(evaluation.results)
    if metric is None:
        return []
    found: dict[str, Any] = evaluation.results["overall"][metric]
    low, high = (
        numbers.words(numbers.number(found[n], numbers.digits_of(metric))) for n in ("low", "high")
    )
    reach = "" if found["low"] is None else f"{low} to {high}, "
    note = f"{reach}{numbers.several(found['examples'], 'example')}"
    value = numbers.words(numbers.number(found["value"], numbers.digits_of(metric)))
    return [Figure(f"Evaluated {numbers.named(metric)}", value, note)]


def stages(subject: Subject) -> Table:
    """Every stage with what it made and how long it took."""
    chain, seconds = subject.chain, costs.recorded(subject.chain)
    rows = []
    for kind, told in _TOLD.items():
        link = chain.get(kind)
        stage = costs.STAGE[kind]
        text = told(link.header.stats) if link else "not there"
        rows.append(
            (stage, text, link.header.key[:12] if link else "–", numbers.seconds(seconds[stage]))
        )
    return Table("The chain", ("stage", "result", "key", "time"), rows, 3)


_TOLD: dict[str, Callable[[dict[str, Any]], str]] = {
    "signatures": lambda s: f"{s['usable']:,} of {s['rows']:,} rows scored, {s['tokens']:,} tokens",
    "clusters": lambda s: f"{s['clusters']:,} clusters of {s['clusterable']:,} rows",
    "selection": lambda s: (
        f"{s['selected']:,} rows, {numbers.share(s['tokens_fraction'])} of the tokens"
    ),
    "allocation": lambda s: f"{numbers.several(s['steps'], 'step')} an epoch",
    "run": lambda s: f"{numbers.several(s['steps'], 'step')}, {s['tokens']:,} tokens",
}
