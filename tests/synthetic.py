"""Made-up signatures with a known structure, written through the real format."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from formats import artifacts, blocks, signatures
from formats.fingerprints import digest


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
