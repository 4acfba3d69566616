"""The cluster stage: signatures in, cluster map out."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from formats import artifacts
from formats.artifacts import Header
from formats.clusters import Clusters
from formats.places import local, place
from formats.signatures import Signatures
from stages import workers
from stages.cluster.build import build
from stages.cluster.launched import build_on_ranks, cluster_in_launch, publish, up_to_date
from stages.cluster.settings import MEMORY, ROUNDS, SAMPLE, Job, check, expected
from stages.cluster.team import Team
from stages.reporting import Reporter, Silent


def cluster(
    signatures: Path,
    output: Path,
    *,
    clusters: int | Literal["auto"] = "auto",
    centre: bool = True,
    seed: int = 0,
    sample: int = SAMPLE,
    rounds: int = ROUNDS,
    memory: int = MEMORY,
    reuse: Path | None = None,
    extend: bool = False,
    refit: bool = False,
    ranks: int = 1,
    hostfile: Path | None = None,
    force: bool = False,
    reporter: Reporter = Silent(),
) -> Header:
    """Groups examples by what they teach: spherical k-means on their signatures.

    Fitted on a sample of distinct contents, moved by a round over all of them where the sample was only
    a part, then every row is assigned, block by block. The result does not depend on threads, ranks,
    block size or the order of rows. A duplicate takes the label of the row it repeats and counts in the
    cluster's size.

    Args:
        signatures: a ``signatures.zarr``.
        output: the ``clusters.zarr`` to write.
        clusters: K, or "auto" (see ``stages.cluster.auto``). Fewer when there are fewer directions.
        centre: take the mean direction away first: what every example teaches, mostly format.
        seed: of the sample and of k-means++.
        sample: contents to fit on, at most.
        rounds: of k-means over all rows after that, each as expensive as the assignment.
        memory: bytes for the sample and its working copies; a smaller sample is taken to keep to it.
        reuse: an older ``clusters.zarr`` whose centroids and cluster numbers are kept; ``clusters``
            and ``centre`` are then its own. Drift is reported in ``stats["drift"]``.
        extend: with ``reuse``, open new clusters for what fits none of the old ones.
        refit: with ``reuse``, fit again, starting from the old centroids.
        ranks: processes to compute with; ignored inside a launch (torchrun, DeepSpeed, srun).
        hostfile: machines to run the ranks on, as DeepSpeed reads it.
        force: do it again even when the output is up to date.
        reporter: where messages go.

    Returns:
        The header of the map.

    Raises:
        SettingError: a number is out of range, ``clusters`` is given with ``reuse``, or ``extend`` or
            ``refit`` without it.
        ArtifactError: the signatures or the old map cannot be read, are not of one signature space,
            or hold nothing to cluster.
        OutputBusyError: another process is writing the output.
        WorkerError: a rank failed.
    """
    signatures, output = place(signatures), local(output)
    check(clusters, sample, rounds)
    source = Signatures.open(signatures)
    old = Clusters.open(reuse) if reuse else None
    if old is not None:
        old.check_space(
            source, "score the data with the map's model and settings, or cluster without --reuse"
        )
    params, key = expected(
        source.header.key,
        source.dims,
        clusters=clusters,
        centre=centre,
        seed=seed,
        sample=sample,
        rounds=rounds,
        memory=memory,
        reuse=old.header if old else None,
        extend=extend,
        refit=refit,
    )
    job = Job(signatures, output, old.path if old else None, params, key)
    if workers.inside_launch():
        return cluster_in_launch(job, force=force, reporter=reporter)
    with artifacts.locked(output):
        if not force and (fresh := up_to_date(job, reporter)):
            return fresh
        if ranks > 1:
            build_on_ranks(job, ranks, hostfile, reporter)
        else:
            build(job, Team(), reporter)
        return publish(job, reporter)
