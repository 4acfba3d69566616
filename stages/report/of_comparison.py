"""The report of a comparison: arms beside one another, what they cost, and what may be concluded."""

from __future__ import annotations

from collections.abc import Sequence

from formats.comparison import Comparison
from formats.evaluation import LOSSES
from stages.inspect.origin import UNCHECKED
from stages.report import arms, numbers
from stages.report.arms import Arm
from stages.report.curves import learning_curve
from stages.report.document import Block, Card, Cards, Cell, Figure, Report, Section, Table
from stages.report.groups import by_group
from stages.report.provenance import facts, read
from stages.savings import as_time

FULL = "full"


def of_comparison(found: Comparison) -> Report:
    """The whole report."""
    metric = found.header.params["metric"]
    sections = [
        Section("quality", "Quality", arms.quality(found.arms, metric)),
        Section("differences", "Differences, seed by seed", arms.differences(found.arms, metric)),
        Section("groups", "By group", by_group(found.trials, metric)),
        Section("curve", "Learning curve", learning_curve(found.arms, metric)),
        Section("costs", "Costs and savings", arms.spending(found.arms)),
        Section("provenance", "Provenance", _provenance(found)),
    ]
    return Report(
        title=f"Comparison of {numbers.several(len(found.arms), 'arm')}",
        lead=_lead(found, metric),
        figures=_figures(found, metric),
        verdicts=found.verdicts,
        sections=[section for section in sections if section.blocks],
        short=[_short(found.arms, metric)],
    )


def _lead(found: Comparison, metric: str) -> str:
    params = found.header.params
    names = [arm["arm"] for arm in found.arms]
    lower = "lower" if metric in LOSSES else "higher"
    margin = params["margin"]
    allowed = f"{100 * margin:g} %" if metric in LOSSES else f"{100 * margin:g} points"
    return (
        f"The same model was trained on {numbers.several(len(names), 'choice')} of rows "
        f"({', '.join(names)}), each with {numbers.several(params['seeds'], 'seed')} and an equal budget "
        f"of {params['budget']}, and evaluated on the same rows, none of which was trained on. "
        f"The deciding figure is {numbers.named(metric)}: {lower} is better, and up to {allowed} worse "
        "than training on everything counts as good. Intervals are Student's 95 % over seeds."
    )


def _figures(found: Comparison, metric: str) -> list[Figure]:
    digits, figures = numbers.digits_of(metric), []
    ordered = sorted(
        found.arms, key=lambda a: a["quality"][metric]["mean"], reverse=metric not in LOSSES
    )
    subsets = [arm for arm in ordered if arm["arm"] != FULL]
    for arm in [a for a in ordered if a["arm"] == FULL] + subsets[:1]:
        name = "All rows" if arm["arm"] == FULL else f"Best subset: {arm['arm']}"
        value = f"{arm['quality'][metric]['mean']:.{digits}f}"
        note = f"{numbers.named(metric)}, {numbers.count(arm['rows'])} rows"
        figures.append(Figure(name, value, note))
    for arm in subsets[:1]:
        kept = arm["against"].get(FULL, {}).get("retention")
        if kept:
            figures.append(Figure("Kept of full quality", numbers.share(kept), arm["arm"]))
        if "savings" in arm:
            share = arm["savings"]["net_share"]
            net = f"{as_time(arm['savings']['net_hours'])}, selecting counted"
            figures.append(Figure("Net saving", numbers.share(share), net))
    return figures


def _short(lines: Sequence[Arm], metric: str) -> Table:
    """The one table of the short form."""
    rows: list[list[Cell]] = []
    for arm in lines:
        against, found = arm["against"], arm.get("savings")
        random = next((gap for name, gap in against.items() if name != FULL), None)
        kept = against.get(FULL, {}).get("retention")
        rows.append(
            [
                arm["arm"],
                numbers.count(arm["rows"]),
                numbers.interval(arm["quality"][metric], metric),
                numbers.share(kept) if kept else numbers.NONE,
                numbers.interval(random and random["differences"][metric], metric, sign=True),
                numbers.seconds(arm["training_seconds"]),
                numbers.seconds(arm["selecting_seconds"]),
                numbers.share(found["net_share"]) if found else numbers.NONE,
            ]
        )
    name = numbers.named(metric)
    head = ("arm", "rows", name, "of full", "against random", "training", "selecting", "net saving")
    return Table("Arms", head, rows)


def _provenance(found: Comparison) -> list[Block]:
    card = Card("Comparison", str(found.path), facts(found.header), code=True)
    rows = [
        [
            trial["arm"],
            str(trial["seed"]),
            *(
                numbers.seconds(trial["seconds"].get(s))
                for s in ("score", "cluster", "select", "train")
            ),
        ]
        for trial in found.trials
    ]
    head = ("arm", "seed", "score", "cluster", "select", "train")
    note = "Seconds of the stages' own runs; whatever arms have in common was made once."
    inputs = [{**entry, "kind": "data", "state": UNCHECKED} for entry in found.header.inputs]
    return [
        Cards("Artifact", [card], wide=True),
        read(inputs),
        Table("Trials", head, rows, note=note),
    ]
