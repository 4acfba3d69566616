"""Allocations made by hand, so that a test says exactly which rank takes what, with which weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from formats import allocation, artifacts
from formats.data import open_dataset
from formats.fingerprints import digest
from tests import tiny

MAX_LENGTH = 64


def write_data(path: Path, count: int = 24) -> Path:
    """A data file of little sums."""
    return tiny.write_jsonl(path, tiny.questions(count))


def write_allocation(
    folder: Path,
    data: Path,
    steps: list[list[list[list[int]]]],
    *,
    weights: dict[int, float] | None = None,
    epochs: int = 1,
    micro_batch: int | None = None,
    batch: float | None = None,
) -> Path:
    """An allocation from nested lists: ``steps[step][rank][micro]`` is a list of rows.

    Args:
        weights: of the rows that do not weigh 1.
        micro_batch: places in a micro-batch; the longest given one unless said.
        batch: the constant denominator, as plans with a budget of tokens have it.
    """
    weights = weights or {}
    ranks, accumulation = len(steps[0]), len(steps[0][0])
    longest = max(len(rows) for step in steps for rank in step for rows in rank)
    folder.mkdir(parents=True)
    with open_dataset([str(data)]) as dataset:
        ids = [identity.tobytes().hex() for identity in dataset.ids]
        reference = dataset.reference(folder.parent)

    def lines(rank: int) -> list[str]:
        made = []
        for step in range(epochs * len(steps)):
            for micro, rows in enumerate(steps[step % len(steps)][rank]):
                of_rows: list[list[Any]] = [
                    [ids[row] for row in rows],
                    [float(weights.get(row, 1.0)) for row in rows],
                    [row % 3 for row in rows],
                    [20 for _ in rows],
                ]
                made.append(allocation.line((step // len(steps), step, micro), rows, *of_rows))
        return made

    files = [allocation.write_rank(folder, rank, lines(rank)) for rank in range(ranks)]
    header = artifacts.Header(
        kind="allocation",
        key=digest([files, micro_batch, batch]),
        params={},
        inputs=[],
        dataset=reference,
        extra={
            "ranks": ranks,
            "micro_batch": micro_batch or longest,
            "accumulation": accumulation,
            "epochs": epochs,
            "steps_per_epoch": len(steps),
            **({"batch": batch, "most_rows": longest} if batch else {}),
            "files": files,
            "rendering": {"max_length": MAX_LENGTH, "chat_template": None},
        },
    )
    artifacts.write_json(folder / "manifest.json", header.to_json())
    return folder
