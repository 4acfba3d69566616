"""What the methods read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Each method documents what it heeds.

    Attributes:
        quota: see ``stages.select.quotas``.
        within: see ``stages.select.members``.
        trim: fraction of outliers.
        seed: of random choices.
        signatures: where the map's signatures are, if not where it says.
        min_per_cluster: distinct contents that every cluster keeps, where it has as many.
    """

    quota: str | float = "sqrt"
    within: str = "random"
    trim: float = 0.0
    seed: int = 0
    signatures: Path | None = None
    min_per_cluster: int = 0
