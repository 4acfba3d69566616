"""What selecting cost and what it saved."""

from __future__ import annotations

from pathlib import Path

from stages.report import numbers
from stages.report.chain import CALLED, KINDS, Chain
from stages.report.document import Block, Cell, Table, Text
from stages.savings import Savings, as_time, in_words
from stages.savings import measured as from_runs

STAGE = {
    "signatures": "score",
    "clusters": "cluster",
    "selection": "select",
    "allocation": "allocate",
    "run": "train",
}


def recorded(chain: Chain) -> dict[str, float | None]:
    """Seconds of every stage as its artifact says; None where it says none."""
    found: dict[str, float | None] = {}
    for kind in reversed(KINDS):
        said = chain.stats(kind).get("train_seconds" if kind == "run" else "seconds")
        found[STAGE[kind]] = float(said) if isinstance(said, int | float) else None
    return found


def saved(chain: Chain, full: Path) -> Savings:
    """The arithmetic of ``stages.savings`` for the run and one on everything.

    Raises:
        ArtifactError, SettingError: as ``stages.savings.measured``.
    """
    return from_runs(full, chain.need("run").path)


def costs(chain: Chain, found: Savings | None) -> list[Block]:
    """Times of all stages, and the saving where a full run is known."""
    rows: list[tuple[Cell, ...]] = []
    for kind in reversed(KINDS):
        seconds = recorded(chain)[STAGE[kind]]
        there = chain.get(kind) is not None
        note = (
            "" if seconds is not None else "not recorded" if there else "the artifact is not there"
        )
        rows.append((STAGE[kind], CALLED[kind], note, numbers.seconds(seconds)))
    blocks: list[Block] = [Table("Time of each stage", ("stage", "made", "note", "time"), rows, 3)]
    if found is None:
        blocks.append(
            Text("What was saved is not known: name a run on everything with `--full RUN`.")
        )
        return blocks
    return [
        *blocks,
        saving(found),
        *(Text(sentence) for sentence in in_words(found)),
        *_caveats(found),
    ]


def saving(found: Savings) -> Table:
    """Full training beside the subset, and what is left of the difference."""
    hours = (
        ("full training", found.full_hours),
        ("training on the subset", found.subset_hours),
        ("saved", found.saved_hours),
        ("spent on selecting", found.selection_hours),
        ("net saving", found.net_hours),
    )
    rows = [(name, (as_time(h), h), numbers.share(h / found.full_hours)) for name, h in hours]
    return Table("Saving", ("", "time", "of full training"), rows)


def _caveats(found: Savings) -> list[Block]:
    return [
        Text(f"Assuming: {'; '.join(found.notes)}."),
        *(Text(f"Caution: {text}.", warning=True) for text in found.cautions),
    ]
