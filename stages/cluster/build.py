"""From a job to a complete map in ``<output>.partial``: what every rank does."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from formats import artifacts
from formats import clusters as clusters_format
from formats.artifacts import Header
from formats.clusters import Clusters
from formats.errors import ArtifactError
from formats.places import relative
from formats.signatures import STATUS_NAMES, Signatures
from stages.cluster.contents import Contents, find_contents
from stages.cluster.mapping import Map, Mapper
from stages.cluster.reuse import drift
from stages.cluster.settings import Job
from stages.cluster.team import Team
from stages.reporting import Reporter


def build(job: Job, team: Team, reporter: Reporter) -> None:
    """Makes the map; rank 0 alone writes it.

    Raises:
        ArtifactError: the signatures or the old map cannot be read, or hold nothing to cluster.
    """
    began = time.monotonic()
    source = Signatures.open(job.signatures)
    old = Clusters.open(job.reuse) if job.reuse else None
    contents = find_contents(source.column("example_id"), source.column("status"))
    if not len(contents):
        raise ArtifactError(
            f"{job.signatures} has no usable row among {source.rows}: nothing to cluster",
            fix="look at the statuses of its rows; a longer --max-length may help",
        )
    mapper = Mapper(source, contents, job.params, team, reporter)
    found = mapper.fresh() if old is None else mapper.reused(old)
    if team.rank:
        return
    arrays = _arrays(source, contents, found)
    stats = {**_stats(arrays, contents), **found.notes}
    if old is not None:
        clustered = arrays["label"] >= 0
        stats["drift"] = drift(old, arrays["label"][clustered], arrays["similarity"][clustered])
    stats["seconds"] = round(time.monotonic() - began, 2)  # a part of what selecting costs
    header = _header(source, old, job, stats)
    clusters_format.write(artifacts.fresh_partial(job.output), arrays, header)


def _arrays(source: Signatures, contents: Contents, found: Map) -> dict[str, np.ndarray]:
    """Every array of the artifact."""
    clustered = contents.of_row >= 0
    label = np.where(clustered, found.label_U[contents.of_row], -1).astype(np.int32)
    similarity = np.where(clustered, found.similarity_U[contents.of_row], 0).astype(np.float32)
    response_tokens = source.column("response_tokens")
    row_tokens = source.column("prompt_tokens") + response_tokens
    clusters = len(found.centroid_KD)
    return {
        "centroid": found.centroid_KD,
        "centre": found.centre_D,
        "size": np.bincount(label[clustered], minlength=clusters).astype(np.int64),
        "tokens": _sums(label[clustered], row_tokens[clustered], clusters),
        "spread": found.spread_K,
        "label": label,
        "similarity": similarity,
        "row_tokens": row_tokens,
        "response_tokens": response_tokens,
        **{name: source.column(name) for name in ("example_id", "status", "norm", "loss")},
    }


def _sums(label: np.ndarray, value: np.ndarray, clusters: int) -> np.ndarray:
    return np.bincount(label, weights=value, minlength=clusters).astype(np.int64)


def _stats(arrays: dict[str, np.ndarray], contents: Contents) -> dict[str, Any]:
    label, size = arrays["label"], arrays["size"]
    left_out = np.bincount(arrays["status"][label < 0], minlength=len(STATUS_NAMES))
    share = size[size > 0] / size.sum()
    similarity = arrays["similarity"][label >= 0].astype(np.float64)
    return {
        "rows": len(label),
        "clusterable": int(size.sum()),
        "distinct": len(contents),
        "not_clustered": {
            name: int(count) for name, count in zip(STATUS_NAMES, left_out, strict=True) if count
        },
        "clusters": len(size),
        "effective_clusters": round(float(np.exp(-(share * np.log(share)).sum())), 3),
        "largest": int(size.max()),
        "smallest": int(size.min()),
        "single": int((size == 1).sum()),
        "mean_similarity": round(float(similarity.mean()), 6),
        "tokens": int(arrays["tokens"].sum()),
    }


def _header(source: Signatures, old: Clusters | None, job: Job, stats: dict[str, Any]) -> Header:
    folder = job.output.parent
    return Header(
        kind="clusters",
        key=job.key,
        params=job.params,
        inputs=[
            {
                "path": relative(read.path, folder),
                "sha256": read.header.key,
                "rows": read.rows,
            }
            for read in (source, old)
            if read is not None
        ],
        stats=stats,
        dataset=artifacts.rebase_dataset(source.header.dataset, source.path.parent, folder),
        extra={
            name: source.header.extra[name]
            for name in ("space", "space_id", "rendering")
            if name in source.header.extra
        },
    )
