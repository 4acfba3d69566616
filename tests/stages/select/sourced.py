"""Signatures and maps of data that exist: rows with a source, a lesson each, and repetitions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np

from formats import artifacts, blocks
from formats.data import DataOptions, open_dataset
from formats.signatures import DUPLICATE
from stages.cluster import cluster
from tests.synthetic import lessons, write_signatures

SIZES = (120, 60, 30)
SOURCES = ("web", "books", "forum")


def contents(noise: float = 0.9, seed: int = 0) -> np.ndarray:
    """(210, 24) float64: three lessons."""
    return lessons(list(SIZES), dims=24, noise=noise, seed=seed)[0]


def write_map(folder: Path, order: np.ndarray, *, block: int = 64, repeats: int = 20) -> Path:
    """``data.jsonl``, ``s.zarr`` and ``c.zarr`` in a folder; the map's path.

    Args:
        order: of the rows, a permutation of range(210 + repeats); the last ``repeats`` of them repeat
            the first contents.
        block: rows in a stored block.
        repeats: rows whose content another row has too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = contents()
    content = np.concatenate([np.arange(len(rows)), np.arange(repeats)])[order]
    with open(folder / "data.jsonl", "w", encoding="utf-8") as file:
        for number in content.tolist():
            source = SOURCES[0 if number % 10 < 6 else 1 if number % 10 < 9 else 2]
            asked = {"question": f"q{number}", "answer": f"a{number}", "source": source}
            file.write(json.dumps({**asked, "page": number, "tags": [source]}) + "\n")
    first = np.zeros(len(content), dtype=bool)
    first[np.unique(content, return_index=True)[1]] = True
    with open_dataset([str(folder / "data.jsonl")], DataOptions()) as dataset:
        path = write_signatures(
            folder / "s.zarr",
            rows[content],
            ids=dataset.ids,
            status=np.where(first, 0, DUPLICATE),
            tokens=content % 50 + 1,
            block=block,
        )
        reference = dataset.reference(folder)
    group = blocks.open_writable(path)
    group["loss"][...] = (1 + content % 17).astype(np.float32)
    header = artifacts.read_header(path, "signatures")
    # The key of real signatures is that of their data; the same whatever the size of a block.
    blocks.seal(path, dataclasses.replace(header, dataset=reference).to_json())
    cluster(path, folder / "c.zarr", clusters=6)
    return folder / "c.zarr"


def write_target(path: Path, lesson: int, count: int = 8, space_id: str = "space") -> Path:
    """Signatures of wanted examples: unseen ones of one lesson."""
    wanted = lessons(list(SIZES), dims=24, noise=0.9, seed=0)[1] == lesson
    mean = contents()[wanted].mean(axis=0)
    noise = np.random.default_rng(9).normal(size=(count, 24)) * 0.05
    return write_signatures(path, mean + noise, space_id=space_id)
