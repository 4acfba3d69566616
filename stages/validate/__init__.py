"""validate: every checksum, shape and invariant of an artifact, all of it read."""

from __future__ import annotations

from pathlib import Path

from formats.errors import ArtifactError
from formats.kinds import artifact_path, find_kind
from formats.places import Url
from stages.validate import evaluations, plans, runs, zarrs

_CHECKS = {
    "signatures": zarrs.signatures,
    "clusters": zarrs.clusters,
    "selection": plans.selection,
    "allocation": plans.allocation,
    "run": runs.run,
    "evaluation": evaluations.evaluation,
}


def validate(path: Path) -> str:
    """Reads the whole artifact and checks it, also against its input where that is still there.

    Args:
        path: of any artifact, or of its header file.

    Returns:
        What was checked, in words.

    Raises:
        ArtifactError: the first thing that is wrong; names the file and the problem.
    """
    path = artifact_path(path)
    kind = find_kind(path)
    if kind == "run" and isinstance(path, Url):
        raise ArtifactError(
            f"{path} is remote, and the weights of a run are checked here", fix="copy it here first"
        )
    return f"{kind}, {_CHECKS[kind](path)}"
