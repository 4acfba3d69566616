"""What a report of a run is about: its chain, opened part by part, and what was given beside it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from formats.allocation import Allocation
from formats.clusters import Clusters
from formats.errors import SettingError
from formats.evaluation import Evaluation
from formats.kinds import artifact_path
from formats.selection import Selection, read_selection
from stages.report import costs
from stages.report.chain import Chain
from stages.report.lessons import look
from stages.savings import Savings


@dataclass(frozen=True)
class Subject:
    """A run with all that is known about it; parts are opened when they are asked for.

    Attributes:
        chain: the run's artifacts.
        evaluation: of the run's model.
        full: a run on everything.
        saved: against it.
        by: a column that tells sources apart.
    """

    chain: Chain
    evaluation: Evaluation | None = None
    full: Path | None = None
    saved: Savings | None = None
    by: str | None = None

    @classmethod
    def open(cls, run: Path, evaluation: Path | None, full: Path | None, by: str | None) -> Subject:
        """Follows the chain and reads what was given beside it.

        Raises:
            ArtifactError: the run, the evaluation or the full run cannot be read.
            SettingError: the evaluation is another model's, or the full run is the run itself.
        """
        chain = Chain.follow(run)
        found = Evaluation.open(evaluation) if evaluation is not None else None
        if found is not None and found.header.inputs[0]["sha256"] != chain.need("run").header.key:
            raise SettingError(
                f"{evaluation} is an evaluation of {found.header.inputs[0]['path']}, not of {run}",
                fix=f"evaluate it with `cluster-cli evaluate {run} --data DATA -o {evaluation}`",
            )
        if full is None:
            return cls(chain, found, by=by)
        full = artifact_path(full)
        return cls(chain, found, full, costs.saved(chain, full), by)

    @cached_property
    def clusters(self) -> Clusters:
        """The cluster map."""
        return Clusters.open(self.chain.need("clusters").path)

    @cached_property
    def cards(self) -> dict[str, Any]:
        """The clusters' cards; their mix is by the column asked for, else the one selected by."""
        chosen = self.chain.get("selection")
        stratified = chosen.header.params.get("stratify") if chosen else None
        return look(self.clusters, self.by or stratified)

    @cached_property
    def chosen(self) -> Selection:
        """The selection."""
        return read_selection(self.chain.need("selection").path)

    @cached_property
    def plan(self) -> Allocation:
        """The allocation."""
        return Allocation.open(self.chain.need("allocation").path)
