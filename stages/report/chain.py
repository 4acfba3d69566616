"""A run's chain, followed back as far as it is there: allocation, selection, clusters, signatures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.artifacts import HEADERS, Header
from formats.errors import ArtifactMissingError
from stages.inspect.origin import CHANGED, MISSING, RECORDED, origin

KINDS = ("run", "allocation", "selection", "clusters", "signatures")
CALLED = {
    "run": "run",
    "allocation": "allocation",
    "selection": "selection",
    "clusters": "cluster map",
    "signatures": "signatures",
}


@dataclass(frozen=True)
class Link:
    """One artifact: where it is, its header, whether it is the one that was used, its hash as used."""

    path: Path
    header: Header
    state: str = RECORDED
    sha256: str | None = None


@dataclass(frozen=True)
class Chain:
    """All that was found.

    Attributes:
        links: by kind.
        origin: the tree of ``stages.inspect.origin``, data and models included.
        problem: why the chain ends early; empty when it does not.
    """

    links: dict[str, Link]
    origin: list[dict[str, Any]]
    problem: str

    @classmethod
    def follow(cls, run: Path) -> Chain:
        """From a run back.

        Raises:
            ArtifactError: the run itself cannot be read.
        """
        header = artifacts.read_header(run, "run")
        links = {"run": Link(run, header)}
        tree = origin(run, header)
        problem = ""
        for entry in _artifacts(tree):
            if entry["kind"] not in HEADERS:
                state = (
                    "is missing"
                    if entry["state"] == MISSING
                    else f"cannot be read: {entry['state']}"
                )
                problem = f"{entry['path']} {state}"
                break
            path = Path(entry["path"])
            found = artifacts.read_header(path, entry["kind"])
            links[entry["kind"]] = Link(path, found, entry["state"], entry["sha256"])
        return cls(links, tree, problem)

    @property
    def missing(self) -> list[str]:
        """The kinds that were not found."""
        return [kind for kind in KINDS if kind not in self.links]

    @property
    def changed(self) -> list[dict[str, Any]]:
        """Entries of the origin that are there but are not what was used."""
        return [entry for entry in entries(self.origin) if entry["state"] == CHANGED]

    def get(self, kind: str) -> Link | None:
        """The artifact of a kind, None where it is not there."""
        return self.links.get(kind)

    def need(self, kind: str) -> Link:
        """The artifact of a kind.

        Raises:
            ArtifactMissingError: it is not there.
        """
        found = self.links.get(kind)
        if found is None:
            raise ArtifactMissingError(
                f"the {CALLED[kind]} {'are' if kind == 'signatures' else 'is'} not there"
                + (f" ({self.problem})" if self.problem else "")
            )
        return found

    def stats(self, kind: str) -> dict[str, Any]:
        """Its figures; empty where it is not there."""
        found = self.links.get(kind)
        return found.header.stats if found else {}


def entries(tree: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every entry of an origin, the nearest first."""
    for entry in tree:
        yield entry
        yield from entries(entry["origin"])


def _artifacts(tree: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for entry in entries(tree):
        if entry["kind"] not in ("data", "model"):
            yield entry
