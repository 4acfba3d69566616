"""The cluster stage: signatures in, cluster map out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from formats import artifacts
from formats import clusters as clusters_format
from formats.artifacts import Header
from formats.errors import ArtifactError, SettingError
from formats.signatures import STATUS_NAMES, Signatures
from stages.cluster import auto
from stages.cluster.assign import assign
from stages.cluster.contents import Contents, draw, find_contents
from stages.cluster.fit import centre_rows, fit, load_sample, mean_direction
from stages.cluster.spread import Sample, spread
from stages.reporting import Reporter, Silent

STAGE_VERSION = 1
SAMPLE = 50_000
MEMORY = 2 << 30  # bytes
_TRIES, _FEW_ROWS = 4, 20_000  # up to so many rows several starts cost little and help


@dataclass(frozen=True)
class Map:
    """A fitted map before it is written. Shapes as in ``formats.clusters``; U contents."""

    centroid_KD: np.ndarray
    centre_D: np.ndarray
    spread_K: np.ndarray
    label_U: np.ndarray
    similarity_U: np.ndarray
    notes: dict[str, Any]


def cluster(
    signatures: Path,
    output: Path,
    *,
    clusters: int | Literal["auto"] = "auto",
    centre: bool = True,
    seed: int = 0,
    sample: int = SAMPLE,
    memory: int = MEMORY,
    force: bool = False,
    reporter: Reporter = Silent(),
) -> Header:
    """Groups examples by what they teach: spherical k-means on their signatures.

    Fitted on a sample of distinct contents, then every row is assigned, block by block. The result
    does not depend on thread count, block size or the order of rows. A duplicate takes the label of
    the row it repeats and counts in the cluster's size.

    Args:
        signatures: a ``signatures.zarr``.
        output: the ``clusters.zarr`` to write.
        clusters: K, or "auto" (see ``stages.cluster.auto``). Fewer when there are fewer directions.
        centre: take the mean direction away first: what every example teaches, mostly format.
        seed: of the sample and of k-means++.
        sample: contents to fit on, at most.
        memory: bytes for the sample and its working copies; a smaller sample is taken to keep to it.
        force: do it again even when the output is up to date.
        reporter: where messages go.

    Returns:
        The header of the map.

    Raises:
        SettingError: ``clusters`` or ``sample`` is out of range.
        ArtifactError: the signatures cannot be read, or hold nothing to cluster.
        OutputBusyError: another process is writing the output.
    """
    signatures, output = Path(signatures), Path(output)
    _check(clusters, sample)
    source = Signatures.open(signatures)
    sample = _affordable(sample, source.dims, memory, clusters)
    params = {"clusters": clusters, "centre": centre, "seed": seed, "sample": sample}
    key = artifacts.stage_key("cluster", STAGE_VERSION, params=params, inputs=[source.header.key])
    with artifacts.locked(output):
        if not force and (fresh := artifacts.fresh_header(output, "clusters", key)):
            artifacts.touch(output, "clusters")
            reporter.message(f"{output} is up to date")
            return fresh
        contents = find_contents(source.column("example_id"), source.column("status"))
        if not len(contents):
            raise ArtifactError(
                f"{signatures} has no usable row among {source.rows}: nothing to cluster",
                fix="look at the statuses of its rows; a longer --max-length may help",
            )
        found = _map(source, contents, params, reporter)
        arrays = _arrays(source, contents, found)
        stats = {**_stats(arrays, contents), **found.notes}
        _report(stats, reporter)
        header = _header(source, output, key, params, stats)
        clusters_format.write(artifacts.fresh_partial(output), arrays, header, source.block)
        artifacts.commit(output)
    return header


def _check(clusters: int | str, sample: int) -> None:
    if clusters != "auto" and (not isinstance(clusters, int) or clusters < 1):
        raise SettingError(
            f"the number of clusters is {clusters!r}", fix="give a positive number, or auto"
        )
    if sample < 1:
        raise SettingError(f"the sample is {sample} rows", fix="give a positive number")


def _affordable(sample: int, dims: int, memory: int, clusters: int | str) -> int:
    """The sample that fits the budget; k-means holds the rows once more in its own matrices."""
    fits = max(1, memory // (2 * 4 * dims))
    if clusters != "auto" and isinstance(clusters, int) and clusters > fits:
        raise SettingError(
            f"{clusters} clusters need a sample of at least as many rows, "
            f"but {memory / 2**30:.1f} GiB hold {fits}",
            fix="allow more memory, or ask for fewer clusters",
        )
    wanted = max(sample, clusters) if isinstance(clusters, int) else sample
    return min(wanted, fits)


def _map(source: Signatures, contents: Contents, params: dict[str, Any], reporter: Reporter) -> Map:
    """Fits on a sample, assigns every content, numbers the clusters."""
    chosen = draw(contents, params["sample"], params["seed"])
    sample_SD = load_sample(source, contents, chosen)
    weight_S = contents.multiplicity[chosen].astype(np.float64)
    centre_D = np.zeros(source.dims, dtype=np.float32)
    if params["centre"]:
        centre_D = mean_direction(sample_SD, weight_S)
    length_S = centre_rows(sample_SD, centre_D)
    wanted, notes = _number(params, sample_SD, weight_S, reporter)
    tries = _TRIES if len(chosen) <= _FEW_ROWS else 1
    centroid_KD = fit(sample_SD, weight_S, wanted, params["seed"], tries=tries)
    with reporter.progress("cluster", source.rows) as advance:
        label_U, similarity_U = assign(source, contents, centroid_KD, centre_D, advance)
    order, label_U = number(label_U, contents.multiplicity)
    if len(order) < wanted:
        reporter.message(f"{len(order)} clusters instead of {wanted}: the others were empty")
    norm_S = source.column("norm")[contents.row[chosen]]
    sample = Sample(sample_SD, length_S, weight_S, norm_S, label_U[chosen])
    spread_K = spread(sample, centre_D, len(order))
    return Map(centroid_KD[order], centre_D, spread_K, label_U, similarity_U, notes)


def _number(
    params: dict[str, Any], sample_SD: np.ndarray, weight_S: np.ndarray, reporter: Reporter
) -> tuple[int, dict[str, Any]]:
    """K, and why when it was chosen here."""
    if params["clusters"] != "auto":
        return params["clusters"], {}
    # Ids are hashes, so the first contents by id are as good a sample as any.
    part = slice(0, auto.SAMPLE)
    choice = auto.choose(sample_SD[part], weight_S[part], params["seed"])
    reporter.message(choice.reason)
    return choice.clusters, {"auto": {"reason": choice.reason, "curve": choice.curve}}


def number(label_U: np.ndarray, multiplicity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drops empty clusters and numbers the others by descending size, then smallest id.

    Args:
        label_U: (U) provisional labels, contents ascending by id.
        multiplicity: (U) rows of each content.

    Returns:
        The provisional labels in their new order, and the (U) int32 new labels.
    """
    used, first, inverse = np.unique(label_U, return_index=True, return_inverse=True)
    size = np.bincount(inverse, weights=multiplicity)
    order = np.lexsort((first, -size))
    renumbered = np.empty(len(used), dtype=np.int32)
    renumbered[order] = np.arange(len(used), dtype=np.int32)
    return used[order], renumbered[inverse]


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
    share = size / size.sum()
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


def _report(stats: dict[str, Any], reporter: Reporter) -> None:
    if stats["not_clustered"]:
        counts = ", ".join(f"{n:,} {name}" for name, n in stats["not_clustered"].items())
        missing = stats["rows"] - stats["clusterable"]
        reporter.warn(f"{missing:,} of {stats['rows']:,} rows are not clustered ({counts})")
    reporter.message(
        f"{stats['clusterable']:,} rows ({stats['distinct']:,} distinct) in {stats['clusters']} "
        f"clusters of {stats['smallest']:,} to {stats['largest']:,} rows; mean similarity "
        f"{stats['mean_similarity']:.3f}"
    )


def _header(
    source: Signatures, output: Path, key: str, params: dict[str, Any], stats: dict[str, Any]
) -> Header:
    path, folder = source.path, output.parent
    return Header(
        kind="clusters",
        key=key,
        params=params,
        inputs=[
            {
                "path": os.path.relpath(path, folder),
                "sha256": source.header.key,
                "rows": source.rows,
            }
        ],
        stats=stats,
        dataset=artifacts.rebase_dataset(source.header.dataset, path.parent, folder),
        extra={
            name: source.header.extra[name]
            for name in ("space", "space_id", "rendering")
            if name in source.header.extra
        },
    )
