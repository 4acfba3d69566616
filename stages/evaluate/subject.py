"""What is evaluated: a run or any model, how it was trained to read, and which rows it has seen."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from formats import artifacts
from formats.allocation import Allocation
from formats.data import DataOptions, Dataset
from formats.errors import ArtifactError, DataError, ModelError
from formats.fingerprints import file_sha256
from formats.kinds import artifact_path
from formats.selection import hex_ids
from stages.models import ModelFiles, find_model

MAX_LENGTH = 1024  # tokens per example, where no run says how it was trained
_SHOWN = 5


@dataclass(frozen=True)
class Subject:
    """A model, with the run it came from where that is known.

    Attributes:
        name: as the user gave it.
        files: the model's files; a run trained with LoRA has them with the adapter added in.
        run: the run's folder, None for any other model.
        header: the run's header.
    """

    name: str
    files: ModelFiles
    run: Path | None = None
    header: artifacts.Header | None = None

    @classmethod
    def find(cls, name: str | os.PathLike[str]) -> Subject:
        """A run folder (or its ``run.json``), model folder, GGUF file, or hub name.

        Raises:
            ModelError: it is none of these, or its weights cannot be used.
            ArtifactError: the run is incomplete or of an unknown version.
        """
        path = artifact_path(name)
        if not (path / artifacts.HEADERS["run"][0]).is_file():
            _refuse_bare_adapter(path)
            return cls(str(name), find_model(name))
        header = artifacts.read_header(path, "run")
        return cls(str(name), find_model(path / "model"), path, header)

    @cached_property
    def allocation(self) -> Allocation | None:
        """What the run was trained on; None for a model that is no run.

        Raises:
            ArtifactError: it is no longer there, or another one by now.
        """
        if self.run is None or self.header is None:
            return None
        said = self.header.inputs[0]
        path = Path(os.path.normpath(self.run.parent / said["path"]))
        fix = "bring it back, or add --allow-overlap to evaluate without looking for them"
        try:
            found = Allocation.open(path)
            now = file_sha256(path / artifacts.HEADERS["allocation"][0])
        except (ArtifactError, DataError) as error:
            raise ArtifactError(
                f"the rows that {self.name} was trained on cannot be told: {error.problem}", fix=fix
            ) from error
        if now != said["sha256"]:
            raise ArtifactError(
                f"the rows that {self.name} was trained on cannot be told: {path} is another "
                "allocation now",
                fix=fix,
            )
        return found

    def known_allocation(self) -> Allocation | None:
        """The same, or None where it cannot be had."""
        try:
            return self.allocation
        except ArtifactError:
            return None

    def rendering(self) -> dict[str, Any]:
        """``max_length`` and ``chat_template`` as trained, where that is known."""
        allocation = self.known_allocation()
        if allocation is None or self.header is None:
            return {"max_length": MAX_LENGTH, "chat_template": None}
        said = allocation.header.extra["rendering"]
        length = self.header.params.get("max_length") or said["max_length"]
        return {"max_length": length, "chat_template": said["chat_template"]}

    def options(self, given: DataOptions) -> DataOptions:
        """How to read the data: as the flags say, else with the fields of the run's training data."""
        if self.header is None or given.format != "auto" or given.fields:
            return given
        known = DataOptions.from_json(self.header.dataset.get("options", {}))
        return replace(given, format=known.format, fields=known.fields)

    def trained_ids(self) -> set[str]:
        """Ids of the rows the run was trained on, hexadecimal.

        Raises:
            ArtifactError: as ``allocation``, or a file of it is damaged.
        """
        ids: set[str] = set()
        for rank in range(self.allocation.ranks if self.allocation else 0):
            assert self.allocation is not None
            for batch in self.allocation.rank(rank):
                if batch.epoch > 0:
                    break  # every epoch has the same rows
                ids.update(batch.ids)
        return ids


def _refuse_bare_adapter(path: Path) -> None:
    """What train leaves in ``adapter/`` has no tokenizer; ``model/`` beside it is the whole."""
    if (path / "adapter_config.json").is_file() and not (path / "tokenizer_config.json").is_file():
        raise ModelError(
            f"{path} is an adapter without a tokenizer",
            fix="give its run, where model/ has the adapter added in",
        )


def seen_rows(dataset: Dataset, trained: set[str]) -> list[int]:
    """Rows of the data that were trained on, by content."""
    if not trained:
        return []
    return np.flatnonzero([name in trained for name in hex_ids(dataset.ids)]).tolist()


def refuse_seen(dataset: Dataset, rows: list[int], name: str) -> None:
    """Figures on rows that were trained on say nothing about other rows.

    Raises:
        DataError: there are such rows; ``data`` has ``rows`` (all) and ``total``.
    """
    if not rows:
        return
    shown = []
    for row in rows[:_SHOWN]:
        example = dataset[row]
        shown.append(f"row {row} ({example.file}:{example.line}, id {example.id.hex()})")
    more = f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    raise DataError(
        f"{len(rows):,} of {len(dataset):,} rows were trained on in {name}: "
        f"{', '.join(shown)}{more}",
        fix="leave them out of the data, or add --allow-overlap to count them all the same",
        rows=rows,
        total=len(rows),
    )
