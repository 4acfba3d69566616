"""What decides a map: parameters, their checks, and the key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from formats import artifacts
from formats.artifacts import Header
from formats.errors import SettingError
from formats.places import place

STAGE_VERSION = 4
SAMPLE = 50_000
MEMORY = 2 << 30  # bytes
ROUNDS = 1


@dataclass(frozen=True)
class Job:
    """One map to make, as every rank is told it.

    Attributes:
        signatures, output, reuse: as in ``cluster``.
        params, key: see ``expected``.
    """

    signatures: Path
    output: Path
    reuse: Path | None
    params: dict[str, Any]
    key: str

    def to_json(self) -> dict[str, Any]:
        """For ranks that another process starts, whatever their folder."""
        return {
            "signatures": str(self.signatures.absolute()),
            "output": str(self.output.absolute()),
            "reuse": str(self.reuse.absolute()) if self.reuse else None,
            "params": self.params,
            "key": self.key,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Job:
        """The job that ``to_json`` wrote."""
        reuse = place(value["reuse"]) if value["reuse"] else None
        paths = place(value["signatures"]), Path(value["output"])
        return cls(*paths, reuse, value["params"], value["key"])


def expected(
    signatures: str,
    dims: int,
    *,
    clusters: int | Literal["auto"] = "auto",
    centre: bool = True,
    seed: int = 0,
    sample: int = SAMPLE,
    rounds: int = ROUNDS,
    memory: int = MEMORY,
    reuse: Header | None = None,
    extend: bool = False,
    refit: bool = False,
) -> tuple[dict[str, Any], str]:
    """The parameters and the key of the map that ``cluster`` would write, without reading anything.

    Args:
        signatures: the key of the signatures.
        dims: their D.
        clusters, centre, seed, sample, rounds, memory, extend, refit: as in ``cluster``.
        reuse: the header of the older map.

    Raises:
        SettingError: ``clusters``, ``sample`` or ``rounds`` is out of range, ``clusters`` is given
            with ``reuse``, or ``extend`` or ``refit`` without it.
    """
    check(clusters, sample, rounds)
    if (extend or refit) and reuse is None:
        raise SettingError(
            f"--{'extend' if extend else 'refit'} needs an older map",
            fix="add --reuse clusters.zarr",
        )
    if reuse is not None and clusters != "auto":
        raise SettingError(
            f"--clusters {clusters} and --reuse are both given: an older map has its own clusters",
            fix="leave one out",
        )
    params = {"clusters": clusters, "centre": centre, "seed": seed}
    inputs = [signatures]
    if reuse is not None:
        params |= {"clusters": reuse.stats["clusters"], "centre": reuse.params["centre"]}
        params |= {"reuse": True, "extend": extend, "refit": refit}
        inputs.append(reuse.key)
    params["sample"] = _affordable(sample, dims, memory, params["clusters"])
    if rounds != ROUNDS:
        params["rounds"] = rounds
    return params, artifacts.stage_key("cluster", STAGE_VERSION, params=params, inputs=inputs)


def check(clusters: int | str, sample: int, rounds: int) -> None:
    """Raises SettingError unless all are in range."""
    if clusters != "auto" and (not isinstance(clusters, int) or clusters < 1):
        raise SettingError(
            f"the number of clusters is {clusters!r}", fix="give a positive number, or auto"
        )
    if sample < 1:
        raise SettingError(f"the sample is {sample} rows", fix="give a positive number")
    if rounds < 0:
        raise SettingError(f"there are {rounds} rounds over all rows", fix="give 0 or more")


def _affordable(sample: int, dims: int, memory: int, clusters: int | str) -> int:
    """The sample that fits the budget, its working copies included."""
    fits = max(1, memory // (2 * 4 * dims))
    if clusters != "auto" and isinstance(clusters, int) and clusters > fits:
        raise SettingError(
            f"{clusters} clusters need a sample of at least as many rows, "
            f"but {memory / 2**30:.1f} GiB hold {fits}",
            fix="allow more memory, or ask for fewer clusters",
        )
    wanted = max(sample, clusters) if isinstance(clusters, int) else sample
    return min(wanted, fits)
