"""Made-up signatures with a known structure, written through the real format."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from formats import artifacts, blocks, clusters, signatures
from formats.fingerprints import digest
from stages.reporting import Advance, Silent

# How the method was published; the defaults of `select` are others.
PUBLISHED: dict[str, Any] = {"quota": "equal", "within": "farthest", "weights": True}


class Notes:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.warnings: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def progress(
        self, title: str, total: float, unit: str = "rows"
    ) -> AbstractContextManager[Advance]:
        return Silent().progress(title, total, unit)


def make_ids(numbers: np.ndarray) -> np.ndarray:
    """(n, 16) uint8: as good as hashes, equal for equal numbers."""
    return np.array([list(bytes.fromhex(digest(int(n))[:32])) for n in numbers], dtype=np.uint8)


def write_signatures(
    path: Path,
    signature: np.ndarray,
    *,
    ids: np.ndarray | None = None,
    status: np.ndarray | None = None,
    tokens: np.ndarray | None = None,
    block: int = 64,
    space_id: str = "space",
) -> Path:
    """A ``signatures.zarr``; rows whose status carries none get a zero signature."""
    rows, dims = signature.shape
    status = np.zeros(rows, dtype=np.uint8) if status is None else np.asarray(status, np.uint8)
    length = np.linalg.norm(signature, axis=1)
    unit = signature / np.where(length > 0, length, 1)[:, None]
    unit[status > signatures.TRUNCATED] = 0
    group = signatures.create(path, rows, dims, block)
    group["signature"][...] = unit.astype(np.float16)
    group["example_id"][...] = make_ids(np.arange(rows)) if ids is None else ids
    group["norm"][...] = length.astype(np.float32)
    group["loss"][...] = np.linspace(1, 2, rows, dtype=np.float32)
    group["prompt_tokens"][...] = np.full(rows, 10, dtype=np.int32)
    group["response_tokens"][...] = np.arange(rows) % 50 + 1 if tokens is None else tokens
    group["status"][...] = status
    header = artifacts.Header(
        kind="signatures",
        key=digest([signature.astype(float).round(6).tolist(), status.tolist()]),
        params={},
        inputs=[],
        stats={},
        dataset={"sources": [{"path": "data.jsonl"}]},
        extra={"space": {"sketch": dims}, "space_id": space_id, "rendering": {"max_length": 64}},
    )
    blocks.seal(path, header.to_json())
    return path


def write_clusters(
    path: Path,
    label: np.ndarray,
    *,
    similarity: np.ndarray | None = None,
    tokens: np.ndarray | None = None,
    ids: np.ndarray | None = None,
    status: np.ndarray | None = None,
    norm: np.ndarray | None = None,
    loss: np.ndarray | None = None,
    spread: np.ndarray | None = None,
) -> Path:
    """A ``clusters.zarr`` with the given labels; centroids are of no meaning."""
    label = np.asarray(label, dtype=np.int32)
    rows, count = len(label), int(label.max()) + 1
    tokens = np.full(rows, 20) if tokens is None else tokens
    clustered = label >= 0
    by_label = np.bincount(label[clustered], weights=tokens[clustered], minlength=count)
    if similarity is None:
        similarity = np.random.default_rng(0).uniform(0.1, 1, rows)
    arrays = {
        "centroid": np.eye(count, dtype=np.float32),
        "centre": np.zeros(count, dtype=np.float32),
        "size": np.bincount(label[clustered], minlength=count).astype(np.int64),
        "tokens": by_label.astype(np.int64),
        "spread": np.ones(count, np.float32) if spread is None else spread.astype(np.float32),
        "label": label,
        "similarity": similarity.astype(np.float32),
        "example_id": make_ids(np.arange(rows)) if ids is None else ids,
        "status": np.zeros(rows, np.uint8) if status is None else np.asarray(status, np.uint8),
        "norm": np.ones(rows, np.float32) if norm is None else norm.astype(np.float32),
        "loss": np.ones(rows, np.float32) if loss is None else loss.astype(np.float32),
        "row_tokens": np.asarray(tokens, dtype=np.int32),
        "response_tokens": np.asarray(tokens, dtype=np.int32) // 2,
    }
    header = artifacts.Header(
        kind="clusters",
        key=digest({name: array.tobytes().hex() for name, array in arrays.items()}),
        params={},
        inputs=[],
        dataset={"sources": [{"path": "data.jsonl"}]},
        extra={"space": {}, "space_id": "space", "rendering": {"max_length": 64}},
    )
    path.mkdir(parents=True)
    clusters.write(path, arrays, header, block=max(1, rows))
    return path


def lessons(
    sizes: list[int], dims: int = 16, noise: float = 0.2, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Unit-ish rows around one random direction per lesson: (rows, dims) and the lesson of each."""
    random = np.random.default_rng(seed)
    direction = np.linalg.qr(random.normal(size=(dims, dims)))[0][: len(sizes)]
    lesson = np.repeat(np.arange(len(sizes)), sizes)
    rows = direction[lesson] + noise / np.sqrt(dims) * random.normal(size=(len(lesson), dims))
    shuffle = random.permutation(len(lesson))
    return rows[shuffle], lesson[shuffle]
