"""The compare stage: trials in, one comparison out."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.comparison import KIND, NAME, write_comparison
from formats.data import DataOptions, find_sources
from formats.errors import SettingError
from formats.evaluation import METRICS, Evaluation
from formats.fingerprints import digest
from stages import select, workers
from stages.compare import guards, needed, summary, trials
from stages.compare.arms import FULL
from stages.compare.trials import Made, Store, Trial
from stages.evaluate import EvaluateSettings, evaluate
from stages.evaluate.settings import VERSION as EVALUATED
from stages.pipeline.chain import arguments_of
from stages.reporting import Reporter, Silent
from stages.select.enough import rules

VERSION = 3  # raise by hand when equal trials would give another comparison
BUDGETS = ("rows", "tokens")
_SETTINGS, _OPTIONS = EvaluateSettings(), DataOptions()


@dataclass(frozen=True)
class Comparison:
    """What is compared, and how.

    Attributes:
        trials: every arm with every seed.
        data: to evaluate on; no row of it may be among the training data.
        settings: of the evaluation.
        options: how the evaluation's data are read; as the training data where they say nothing.
        metric: decides what is better, one of ``formats.evaluation.METRICS``.
        margin: how much worse than all rows still counts as good: 0.01 is 1 % of a loss, or one point
            of a share.
        budget: what the arms have in equal measure: ``rows`` or ``tokens``.
        ranks: processes to evaluate with.
        keep_models: leave the trained weights on disk.
    """

    trials: Sequence[Trial]
    data: Sequence[str]
    settings: EvaluateSettings = _SETTINGS
    options: DataOptions = _OPTIONS
    metric: str = "loss"
    margin: float = 0.01
    budget: str = "rows"
    ranks: int = 1
    keep_models: bool = False

    def check(self) -> None:
        """Looks at the settings before anything is made.

        Raises:
            SettingError: some make no sense; all of them are named at once.
        """
        wrong = []
        if not self.data:
            wrong.append("there is nothing to evaluate on; give --data")
        if not self.trials:
            wrong.append("there is no arm to compare")
        if self.metric not in METRICS:
            wrong.append(f"metric is {self.metric!r}; use one of {', '.join(METRICS)}")
        if not 0 <= self.margin < 1:
            wrong.append(f"margin is {self.margin}, it must be 0 or more and below 1")
        if self.budget not in BUDGETS:
            wrong.append(f"budget is {self.budget!r}; use rows or tokens")
        for trial in self.trials:
            given = trial.pipeline.arguments
            if "train" not in given:
                wrong.append("the chain ends before training; give the file a [train] section")
                break
            fraction = given["select"].get("fraction")
            if (
                self.budget == "tokens"
                and trial.arm.name != FULL
                and not isinstance(fraction, float)
            ):
                wrong.append("--budget tokens needs select.fraction, the share of all tokens")
                break
        if wrong:
            raise SettingError("; ".join(wrong), problems=wrong)


def compare(
    comparison: Comparison, output: Path, *, reporter: Reporter = Silent()
) -> artifacts.Header:
    """Runs every trial and writes ``comparison.json`` into the folder ``output``.

    A killed comparison goes on where it was: every stage's output and every trial's result is kept in
    the folder, under the key of all it depends on.

    Args:
        comparison: what to compare.
        output: a folder; new, or of an earlier comparison.
        reporter: where messages and progress go.

    Returns:
        The header; ``formats.comparison.Comparison`` has the rest.

    Raises:
        SettingError: settings make no sense, an arm selects everything, or budgets are unequal.
        DataError: rows of the evaluation's data are among the training data.
        ArtifactError: the folder cannot be written.
        OutputBusyError: another process compares into the same folder.
        ClusterCliError: whatever a stage raises.
    """
    comparison.check()
    if workers.inside_launch():
        raise SettingError(
            "compare starts its ranks itself, but this is one rank of many",
            fix="call it outside of torchrun, srun or deepspeed",
        )
    output.mkdir(parents=True, exist_ok=True)
    target = output / NAME
    with artifacts.locked(target):
        began = time.monotonic()
        _refuse_leak(comparison)
        store = Store(output, reporter)
        chosen = [trials.choose(store, trial, comparison.budget) for trial in comparison.trials]
        _check_selections(comparison, chosen)
        results, asked = [], _asked(comparison)
        for number, (trial, made) in enumerate(zip(comparison.trials, chosen, strict=True), 1):
            reporter.message(f"trial {number} of {len(chosen)}: {trial.name}")
            results.append(_measure(comparison, store, trial, made, asked))
        return _write(comparison, target, results, time.monotonic() - began, reporter)


def _options(comparison: Comparison) -> DataOptions:
    """How the dev data are read: as the training data, unless something else is said."""
    if comparison.options != DataOptions():
        return comparison.options
    return comparison.trials[0].pipeline.arguments["score"]["options"]


def _refuse_leak(comparison: Comparison) -> None:
    given = comparison.trials[0].pipeline.arguments["score"]
    guards.refuse_leak(given["data"], comparison.data, given["options"], _options(comparison))


def _check_selections(comparison: Comparison, chosen: Sequence[dict[str, Made]]) -> None:
    cells: dict[tuple[int, float | None], dict[str, artifacts.Header]] = {}
    for trial, made in zip(comparison.trials, chosen, strict=True):
        header = made["select"].header
        guards.refuse_disguise(trial.arm.name, header)
        if trial.arm.name != FULL:
            cells.setdefault((trial.seed, trial.fraction), {})[trial.label] = header
    for selections in cells.values():
        guards.refuse_unequal(selections, comparison.budget)


def _asked(comparison: Comparison) -> str:
    """What every evaluation depends on besides its model: the settings and the dev data."""
    options = _options(comparison)
    content = [sha256 for _, sha256 in find_sources(comparison.data, options)]
    return digest([EVALUATED, comparison.settings.changed(), content, options.to_json()])


def _measure(
    comparison: Comparison, store: Store, trial: Trial, chosen: dict[str, Made], asked: str
) -> dict[str, Any]:
    key = trials.trial_key(chosen, trial, asked)
    kept = store.kept(trial, key)
    if kept:
        return kept
    made = trials.train(store, trial, chosen)
    run = made["train"].path
    path = store.folder / "trials" / f"{trial.name}.evaluation.json"
    path.parent.mkdir(exist_ok=True)
    evaluate(
        run,
        comparison.data,
        path,
        settings=comparison.settings,
        options=comparison.options,
        ranks=comparison.ranks,
        force=True,  # one of another comparison may lie there half done
        reporter=store.stages,
    )
    result = trials.result(trial, key, made, Evaluation.open(path).results)
    store.keep(trial, result)
    if not comparison.keep_models:
        trials.discard(run)
    return result


def _rules(trial: Trial) -> dict[str, Any]:
    """How a trial's rows are chosen, as ``select --curve`` wants to know."""
    given = arguments_of(select.expected, trial.pipeline.arguments["select"])
    return rules(select.expected("", **given)[0])


def _seen_from(folder: Path, path: str) -> str:
    """A file's place seen from a folder; anything else keeps its name."""
    return os.path.relpath(path, folder) if os.path.exists(path) else path


def _write(
    comparison: Comparison,
    target: Path,
    results: list[dict[str, Any]],
    seconds: float,
    reporter: Reporter,
) -> artifacts.Header:
    by_arm: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        by_arm.setdefault(result["arm"], []).append(result)
    measured = set.intersection(*(set(r["results"]["overall"]) for r in results))
    if comparison.metric not in measured:
        raise SettingError(
            f"the evaluation has no {comparison.metric}", fix=f"use {', '.join(sorted(measured))}"
        )
    what = {trial.label: trial.arm.what for trial in comparison.trials}
    lines = summary.summarise(by_arm, what, comparison.metric, comparison.margin)
    seeds = len({trial.seed for trial in comparison.trials})
    said = summary.verdicts(lines, comparison.metric, comparison.margin, seeds)
    of_arm = {trial.arm.name: trial for trial in comparison.trials}
    curves = [
        {**curve, "select": _rules(of_arm[curve["arm"]])}
        for curve in needed.needed(lines, comparison.metric, FULL)
    ]
    said += needed.sentences(curves)
    params = {
        "metric": comparison.metric,
        "margin": comparison.margin,
        "budget": comparison.budget,
        "seeds": seeds,
        "arms": list(by_arm),
        "evaluation": comparison.settings.changed(),
    }
    given = comparison.trials[0].pipeline.arguments["score"]
    sources = find_sources(given["data"], given["options"])
    held = find_sources(comparison.data, _options(comparison))
    inputs = [
        {"path": _seen_from(target.parent, p), "sha256": s, "rows": None}
        for p, s in (*sources, *held)
    ]
    key = artifacts.stage_key(
        "compare", VERSION, params=params, inputs={"trials": [r["key"] for r in results]}
    )
    stats = {"trials": len(results), "seconds": round(seconds, 2)}
    header = artifacts.Header(KIND, key, params, inputs, stats)
    write_comparison(target, header, arms=lines, verdicts=said, curves=curves, trials=results)
    reporter.message(f"{target}: {len(by_arm)} arms, {seeds} seeds")
    return header
