"""The report of one run: its chain followed back, each part shown as far as it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from formats import artifacts
from formats.errors import ClusterCliError
from formats.signatures import Signatures
from stages.report import choice, costs, summary
from stages.report.balance import balance
from stages.report.document import Block, Report, Section, Text
from stages.report.lessons import lessons
from stages.report.measured import measured
from stages.report.provenance import provenance
from stages.report.subject import Subject
from stages.report.training import training
from stages.savings import in_words


def of_run(subject: Subject) -> Report:
    """The whole report; what is missing is said where it would stand.

    Raises:
        SettingError, DataError: ``by`` cannot be found in the data.
    """
    if subject.by:
        _ = subject.cards
    parts: tuple[tuple[str, str, Callable[[Subject], Sequence[Block]]], ...] = (
        ("lessons", "What the data teaches", _lessons),
        ("coverage", "How much of it is covered", _coverage),
        ("mix", "The mix, before and after", _mix),
        ("weights", "Weights", lambda s: choice.weights(s.chosen)),
        ("balance", "Work per rank and step", lambda s: balance(s.plan)),
        ("training", "Training", lambda s: training(s.chain.need("run").path)),
        ("evaluation", "Evaluation", _evaluation),
        ("costs", "Costs and savings", lambda s: costs.costs(s.chain, s.saved)),
        ("provenance", "Provenance", _provenance),
    )
    sections = [Section(name, title, _tried(make, subject)) for name, title, make in parts]
    return Report(
        title=f"Fine-tuning run {summary.name(subject)}",
        lead=summary.lead(subject),
        figures=summary.figures(subject),
        verdicts=in_words(subject.saved) if subject.saved else [],
        sections=sections,
        short=[summary.stages(subject)],
    )


def _tried(make: Callable[[Subject], Sequence[Block]], subject: Subject) -> Sequence[Block]:
    try:
        return make(subject)
    except ClusterCliError as error:
        return [Text(f"This cannot be shown: {error.problem}.", warning=True)]


def _lessons(subject: Subject) -> list[Block]:
    clusters, signatures, why = subject.clusters, None, ""
    try:
        signatures = Signatures.open(subject.chain.need("signatures").path)
    except ClusterCliError as error:
        why = error.problem
    chosen = subject.chosen if subject.chain.get("selection") else None
    return lessons(clusters, subject.cards, signatures, chosen, why)


def _coverage(subject: Subject) -> list[Block]:
    return choice.coverage(subject.clusters, subject.chosen)


def _mix(subject: Subject) -> list[Block]:
    from formats.data import open_reference

    clusters, chosen = subject.clusters, subject.chosen
    blocks: list[Block] = [choice.mix_of_clusters(clusters, chosen)]
    if subject.cards["mixed_by"] is not None:
        with open_reference(clusters.header.dataset, clusters.path.parent) as dataset:
            blocks += choice.mix_of_sources(subject.cards, dataset, chosen)
    return blocks


def _evaluation(subject: Subject) -> list[Block]:
    if subject.evaluation is None:
        return [
            Text("Nothing is known about the quality: name an evaluation with `--evaluation FILE`.")
        ]
    return measured(subject.evaluation)


def _provenance(subject: Subject) -> list[Block]:
    beside = []
    if subject.evaluation is not None:
        beside.append(("Evaluation", subject.evaluation.path, subject.evaluation.header))
    if subject.full is not None:
        beside.append(
            ("Run on everything", subject.full, artifacts.read_header(subject.full, "run"))
        )
    return provenance(subject.chain, beside)
