"""One chain of one arm with one seed, every stage of it made once and shared by all who need the same.

Outputs lie in ``<comparison>/cache/<stage>-<key>/``: equal keys, equal folder. What was measured on a
trained model is kept in ``<comparison>/trials/``, so a restarted comparison does only what is missing,
also when the models have been thrown away to save disk.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.artifacts import Header
from formats.fingerprints import digest
from stages.compare.arms import FULL, Arm
from stages.pipeline.chain import LINKS, Pipeline, Upstream
from stages.pipeline.running import call_stage
from stages.pipeline.states import judge
from stages.reporting import Reporter

_SECONDS = "seconds.json"
_KEPT = {
    "select": ("selected", "clusterable", "tokens", "clusters", "effective_sample_size"),
    "train": ("steps", "examples", "tokens", "padded_tokens", "train_seconds", "wait_seconds"),
}


@dataclass(frozen=True)
class Trial:
    """One cell of the comparison.

    Attributes:
        arm: the method.
        seed: of all that is drawn at random, paired over arms.
        fraction: of the rows, where the file's own budget is not used.
        pipeline: the chain; its outputs are not used.
    """

    arm: Arm
    seed: int
    fraction: float | None
    pipeline: Pipeline

    @property
    def label(self) -> str:
        """The arm, with its fraction where there are several."""
        if self.fraction is None or self.arm.name == FULL:
            return self.arm.name
        return f"{self.arm.name} {100 * self.fraction:g} %"

    @property
    def name(self) -> str:
        """For file names."""
        return f"{self.label.replace(' %', '').replace(' ', '-')}-seed{self.seed}"


@dataclass(frozen=True)
class Made:
    """A stage's output: where it is, what it says, and the seconds it took when it was made."""

    path: Path
    header: Header
    seconds: float

    def upstream(self) -> Upstream:
        """As the next stage sees it."""
        return Upstream(self.path, self.header.key, self.header)


class Stages:
    """How the stages of a trial are heard: warnings and progress, but not every message of every trial."""

    def __init__(self, reporter: Reporter) -> None:
        self.warn, self.progress = reporter.warn, reporter.progress

    def message(self, text: str) -> None:
        """Dropped."""


class Store:
    """The cache of a comparison.

    Args:
        folder: of the comparison.
        reporter: hears what is made.
    """

    def __init__(self, folder: Path, reporter: Reporter) -> None:
        self.folder, self.reporter = folder, reporter
        self.stages = Stages(reporter)

    def make(self, trial: Trial, stage: str, before: Made | None, changes: dict[str, Any]) -> Made:
        """A stage's output, made unless it is there.

        Args:
            trial: whose arguments the stage gets.
            stage: its name.
            before: the output of the stage before it.
            changes: to the arguments, known only now.

        Raises:
            ClusterCliError: whatever the stage raises.
        """
        link = LINKS[stage]
        given = {**trial.pipeline.arguments[stage], **changes}
        arguments = {**trial.pipeline.arguments, stage: given}
        upstream = before.upstream() if before else None
        key, _ = link.expect(Pipeline(arguments, {}), upstream)
        place = self.folder / "cache" / f"{stage}-{str(key)[:16]}"
        output = place / link.name
        chain = Pipeline(arguments, {stage: output})
        state = judge(chain, stage, upstream)
        if state.fresh and (stage != "train" or (output / "model").is_dir()):
            assert state.header is not None
            return Made(output, state.header, self._seconds(place, state.header))
        self.reporter.message(f"{stage} for {trial.name}")
        place.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        # A run without its model was measured and thrown away; it is wanted again.
        header = call_stage(chain, state, before.path if before else None, state.fresh, self.stages)
        artifacts.write_json(place / _SECONDS, round(time.monotonic() - started, 3))
        header = artifacts.read_header(output, link.kind)
        return Made(output, header, self._seconds(place, header))

    def _seconds(self, place: Path, header: Header) -> float:
        """What the stage itself recorded counts killed runs too; else the time of the last call."""
        recorded = header.stats.get("seconds")
        if isinstance(recorded, int | float):
            return float(recorded)
        try:
            return float(json.loads((place / _SECONDS).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return 0.0

    def kept(self, trial: Trial, key: str) -> dict[str, Any] | None:
        """The result of a trial measured before, also where its arm was called otherwise then."""
        found = self._measured.get(key)
        return found and {**found, **_told(trial, found["seconds"])}

    @cached_property
    def _measured(self) -> dict[str, dict[str, Any]]:
        """Results of earlier runs by their keys."""
        results = {}
        for path in sorted(self.folder.glob("trials/*-seed*[0-9].json")):
            try:
                result = json.loads(path.read_text(encoding="utf-8"))
                results[result["key"]] = result
            except (OSError, ValueError, KeyError):
                continue
        return results

    def keep(self, trial: Trial, result: dict[str, Any]) -> None:
        """Remembers a result."""
        path = self._result(trial)
        path.parent.mkdir(parents=True, exist_ok=True)
        artifacts.write_json(path, result)

    def _result(self, trial: Trial) -> Path:
        return self.folder / "trials" / f"{trial.name}.json"


def choose(store: Store, trial: Trial, budget: str) -> dict[str, Made]:
    """Scores, clusters and selects; the budget is the arm's share of rows or of tokens."""
    made: dict[str, Made] = {}
    before: Made | None = None
    for stage in ("score", "cluster", "select"):
        changes: dict[str, Any] = {}
        if stage == "select" and budget == "tokens" and trial.arm.name != FULL:
            assert before is not None
            given = trial.pipeline.arguments["select"]
            tokens = round(given["fraction"] * before.header.stats["tokens"])
            changes = {"fraction": None, "tokens": tokens}
        before = made[stage] = store.make(trial, stage, before, changes)
    return made


def train(store: Store, trial: Trial, chosen: dict[str, Made]) -> dict[str, Made]:
    """Allocates and trains what was selected."""
    changes: dict[str, Any] = {}
    if trial.arm.equal_steps:
        stats = chosen["select"].header.stats
        epochs = trial.pipeline.arguments["allocate"]["epochs"]
        changes = {"epochs": max(1, round(epochs * stats["clusterable"] / stats["selected"]))}
    made = dict(chosen)
    made["allocate"] = store.make(trial, "allocate", chosen["select"], changes)
    made["train"] = store.make(trial, "train", made["allocate"], {})
    return made


def trial_key(chosen: dict[str, Made], trial: Trial, evaluation: str) -> str:
    """What a trial's result depends on: the rows selected, their signatures, training and evaluation.

    Not the key of the selection: where a stage is made anew and comes out the same, nothing is trained.
    """
    selected, scored = chosen["select"], chosen["score"].header.key
    seen = Upstream(selected.path, "", selected.header)  # of its content alone
    allocated, _ = LINKS["allocate"].expect(trial.pipeline, seen)
    trained, _ = LINKS["train"].expect(trial.pipeline, Upstream(selected.path, allocated))
    return digest([scored, trained, trial.arm.equal_steps, evaluation])


def result(
    trial: Trial, key: str, made: dict[str, Made], evaluation: dict[str, Any]
) -> dict[str, Any]:
    """All that the comparison needs of a trial."""
    seconds = {stage: made[stage].seconds for stage in made}
    return {
        "key": key,
        **_told(trial, seconds),
        **{
            stage: {name: made[stage].header.stats[name] for name in names}
            for stage, names in _KEPT.items()
        },
        "epochs": made["allocate"].header.params["epochs"],
        "seconds": seconds,
        "results": evaluation,
    }


def _told(trial: Trial, seconds: dict[str, float]) -> dict[str, Any]:
    """What a result says of its arm: the same rows can be chosen under another name, at another price."""
    arm = trial.arm
    return {
        "arm": trial.label,
        "seed": trial.seed,
        "selecting_seconds": sum(seconds[stage] for stage in arm.costs) + (arm.before or 0.0),
        "cost_is_known": arm.before is not None,
    }


def discard(run: Path) -> None:
    """Throws the weights of a measured run away; its record stays."""
    for name in ("model", "checkpoints"):
        shutil.rmtree(run / name, ignore_errors=True)
