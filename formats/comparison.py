"""``comparison.json``: arms beside one another, over several seeds.

One JSON object: the common header (``formats.artifacts``), and

* ``arms``: one entry per arm: ``arm``, ``what``, ``rows``, ``effective_sample_size``, ``epochs``,
  ``steps``, ``training_tokens``, ``training_seconds``, ``waiting_seconds``, ``selecting_seconds`` (means
  over seeds), ``quality`` (estimates by metric: ``mean``, ``deviation``, ``low``, ``high``, ``values``),
  ``against`` (by arm: paired ``differences``, whether ``better``, whether ``as_good``, ``retention``) and
  ``savings``;
* ``verdicts``: plain sentences;
* ``curves``: where an arm was measured at several fractions, its ``quality`` at each, the fraction
  ``needed`` for a ``share`` of the full arm's quality (``stages.compare.needed``), and in ``select`` the
  parameters that say how its rows were chosen;
* ``trials``: what was measured, one entry per arm and seed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.errors import ArtifactError

KIND, NAME = "comparison", "comparison.json"
PARTS = ("arms", "verdicts", "trials")


@dataclass(frozen=True)
class Comparison:
    """A comparison read from disk.

    Attributes:
        path: the file.
        header: the common header.
        arms, verdicts, curves, trials: as in the module's text; no curves before version 0.2.
    """

    path: Path
    header: artifacts.Header
    arms: list[dict[str, Any]]
    verdicts: list[str]
    trials: list[dict[str, Any]]
    curves: list[dict[str, Any]]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Comparison:
        """Reads it from its file or its folder.

        Raises:
            ArtifactMissingError, ArtifactError: see ``artifacts.read_header``; or a part is missing.
        """
        path = Path(path)
        path = path / NAME if path.is_dir() else path
        header = artifacts.read_header(path, KIND)
        parts = {name: header.extra.get(name) for name in PARTS}
        for name, part in parts.items():
            if not isinstance(part, list):
                raise ArtifactError(
                    f"{path} has no {name}", fix="run the comparison again, it keeps what it has"
                )
        return cls(path, header, **parts, curves=header.extra.get("curves", []))  # type: ignore[arg-type]


def interval(needed: Mapping[str, Any]) -> str:
    """The interval of a curve's ``needed`` fraction, such as ``35% to 77%``; empty with one seed."""
    if needed["low"] is None:
        return ""
    return f"{max(0.0, needed['low']):.0%} to {min(1.0, needed['high']):.0%}"


def write_comparison(output: Path, header: artifacts.Header, **parts: Any) -> None:
    """Writes it atomically.

    Args:
        parts: ``arms``, ``verdicts``, ``curves`` and ``trials``.

    Raises:
        ArtifactError: the file cannot be written.
    """
    with artifacts.atomic_file(output) as stream:
        json.dump({**header.to_json(), **parts}, stream, ensure_ascii=False, allow_nan=False)
        stream.write("\n")
