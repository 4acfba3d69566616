"""The cluster stage: signatures in, cluster map out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

from formats import artifacts
from formats import clusters as clusters_format
from formats.artifacts import Header
from formats.clusters import Clusters
from formats.errors import ArtifactError, SettingError
from formats.signatures import STATUS_NAMES, Signatures
from stages.cluster.contents import Contents, find_contents
from stages.cluster.mapping import Map, fresh, reused
from stages.cluster.reuse import check_space, drift, listed
from stages.reporting import Reporter, Silent

STAGE_VERSION = 1
SAMPLE = 50_000
MEMORY = 2 << 30  # bytes


def cluster(
    signatures: Path,
    output: Path,
    *,
    clusters: int | Literal["auto"] = "auto",
    centre: bool = True,
    seed: int = 0,
    sample: int = SAMPLE,
    memory: int = MEMORY,
    reuse: Path | None = None,
    extend: bool = False,
    refit: bool = False,
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
        reuse: an older ``clusters.zarr`` whose centroids and cluster numbers are kept; ``clusters``
            and ``centre`` are then its own. Drift is reported in ``stats["drift"]``.
        extend: with ``reuse``, open new clusters for what fits none of the old ones.
        refit: with ``reuse``, fit again, starting from the old centroids.
        force: do it again even when the output is up to date.
        reporter: where messages go.

    Returns:
        The header of the map.

    Raises:
        SettingError: ``clusters`` or ``sample`` is out of range, ``clusters`` is given with
            ``reuse``, or ``extend`` or ``refit`` without it.
        ArtifactError: the signatures or the old map cannot be read, are not of one signature space,
            or hold nothing to cluster.
        OutputBusyError: another process is writing the output.
    """
    signatures, output = Path(signatures), Path(output)
    _check(clusters, sample)
    source = Signatures.open(signatures)
    old = Clusters.open(Path(reuse)) if reuse else None
    if old is not None:
        check_space(source, old)
    params, key = expected(
        source.header.key,
        source.dims,
        clusters=clusters,
        centre=centre,
        seed=seed,
        sample=sample,
        memory=memory,
        reuse=old.header if old else None,
        extend=extend,
        refit=refit,
    )
    with artifacts.locked(output):
        if not force and (current := artifacts.fresh_header(output, "clusters", key)):
            artifacts.touch(output, "clusters")
            reporter.message(f"{output} is up to date")
            return current
        contents = find_contents(source.column("example_id"), source.column("status"))
        if not len(contents):
            raise ArtifactError(
                f"{signatures} has no usable row among {source.rows}: nothing to cluster",
                fix="look at the statuses of its rows; a longer --max-length may help",
            )
        if old is None:
            found = fresh(source, contents, params, reporter)
        else:
            found = reused(source, contents, old, params, reporter)
        arrays = _arrays(source, contents, found)
        stats = {**_stats(arrays, contents), **found.notes}
        if old is not None:
            clustered = arrays["label"] >= 0
            stats["drift"] = drift(old, arrays["label"][clustered], arrays["similarity"][clustered])
        _report(stats, reporter)
        header = _header(source, old, output, key, params, stats)
        clusters_format.write(artifacts.fresh_partial(output), arrays, header, source.block)
        artifacts.commit(output)
    return header


def expected(
    signatures: str,
    dims: int,
    *,
    clusters: int | Literal["auto"] = "auto",
    centre: bool = True,
    seed: int = 0,
    sample: int = SAMPLE,
    memory: int = MEMORY,
    reuse: Header | None = None,
    extend: bool = False,
    refit: bool = False,
) -> tuple[dict[str, Any], str]:
    """The parameters and the key of the map that ``cluster`` would write, without reading anything.

    Args:
        signatures: the key of the signatures.
        dims: their D.
        clusters, centre, seed, sample, memory, extend, refit: as in ``cluster``.
        reuse: the header of the older map.

    Raises:
        SettingError: ``clusters`` or ``sample`` is out of range, ``clusters`` is given with
            ``reuse``, or ``extend`` or ``refit`` without it.
    """
    _check(clusters, sample)
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
    return params, artifacts.stage_key("cluster", STAGE_VERSION, params=params, inputs=inputs)


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
    if "opened" in stats:
        reporter.message(f"{stats['opened']} new clusters were opened")
    if "drift" in stats:
        _report_drift(stats["drift"], reporter)


def _report_drift(found: dict[str, Any], reporter: Reporter) -> None:
    (reporter.warn if found["refit"] else reporter.message)(found["advice"])
    for name, words in (("grew", "at least doubled their share"), ("vanished", "are empty now")):
        if found[name]:
            reporter.message(f"clusters that {words}: {listed(found[name])}")


def _header(
    source: Signatures,
    old: Clusters | None,
    output: Path,
    key: str,
    params: dict[str, Any],
    stats: dict[str, Any],
) -> Header:
    folder = output.parent
    return Header(
        kind="clusters",
        key=key,
        params=params,
        inputs=[
            {
                "path": os.path.relpath(read.path, folder),
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
