"""The score stage: keys, freshness, and who computes what."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats import artifacts
from formats.data import DataOptions, Dataset, open_dataset
from formats.errors import ArtifactError
from formats.fingerprints import digest
from stages import models, workers
from stages.reporting import Console, Reporter, Silent, duration
from stages.score import spent
from stages.score.settings import Job, ScoreSettings, expected_key, signature_space

if TYPE_CHECKING:
    from stages.score.reuse import Known

__all__ = ["ScoreSettings", "expected_key", "score"]


@dataclass(frozen=True)
class Target:
    """What a job will make: worked out once, before anything is computed.

    Attributes:
        signing: the models signatures are computed with.
        space: the signature space.
        key: of the output.
        facts: what the key is made of, by name.
    """

    signing: list[models.ModelFiles]
    space: dict[str, Any]
    key: str
    facts: dict[str, Any]

    @classmethod
    def of(cls, job: Job) -> Target:
        """Hashes data and models."""
        job.check()
        signing, content = job.signing(), job.content()
        space = signature_space(signing, job.settings, content)
        facts = {"data": content, "dtype": job.settings.dtype, **space, **job.options.to_json()}
        return cls(signing, space, job.key(space, content), facts)

    def known(self, job: Job) -> Known:
        """The results that are copied instead of computed.

        Raises:
            ArtifactError: see ``reuse.open_known``.
        """
        from stages.score.reuse import open_known

        return open_known(job.output, job.reuse, self.space)


def score(
    data: Sequence[str],
    model: str,
    output: Path,
    *,
    settings: ScoreSettings = ScoreSettings(),
    options: DataOptions = DataOptions(),
    proxy: str | None = None,
    checkpoints: Sequence[str] = (),
    reuse: Sequence[Path] = (),
    ranks: int = 1,
    hostfile: Path | None = None,
    batch_tokens: int | None = None,
    block_rows: int | None = None,
    trust_remote_code: bool = False,
    allow_partial: bool = False,
    dry_run: bool = False,
    force: bool = False,
    reporter: Reporter = Silent(),
) -> artifacts.Header:
    """Writes ``signatures.zarr`` for every example of the data.

    Args:
        data: files, globs, folders or Hugging Face names.
        model: model folder, ``.gguf`` file or Hugging Face name.
        output: the artifact to write; a killed run resumes from ``<output>.partial``.
        settings: what decides a signature.
        options: how the data is read.
        proxy: a smaller model to compute signatures with, with its own tokenizer and template;
            ``model`` then only counts tokens.
        checkpoints: models in training order, for the kind ``trajectory``.
        reuse: other ``signatures.zarr`` of the same space; rows of equal content are copied from
            them, and from the output's own last version.
        ranks: processes to compute with; ignored inside a launch (torchrun, DeepSpeed, srun).
        hostfile: machines to run the ranks on, as DeepSpeed reads it.
        batch_tokens: padded tokens in a batch; by default 2,048 on a CPU and 8,192 on a GPU.
        block_rows: rows in a stored block, the unit of resuming; by default about 1/64 of the rows.
        trust_remote_code: let a model's own code run.
        allow_partial: go on when signatures can see less than half of the model's weights.
        dry_run: write nothing; the returned header's ``stats`` say what it would cost.
        force: compute again even when the output is up to date, or is half done with another key.
        reporter: where messages and progress go.

    Returns:
        The artifact's header.

    Raises:
        DataError, BadRowsError: the data cannot be used.
        ModelError: the model cannot be found, loaded or hooked.
        SettingError: settings contradict each other.
        ArtifactError: the output cannot be written, a half-done one has another key, or a ``reuse``
            artifact is of another space.
        OutputBusyError: another process writes the same output.
        WorkerError: a rank failed.
    """
    job = Job(
        tuple(data),
        model,
        output,
        settings,
        options,
        proxy,
        tuple(checkpoints),
        tuple(reuse),
        batch_tokens,
        block_rows,
        trust_remote_code,
        allow_partial,
    )
    if workers.inside_launch():
        from stages.score.launched import score_in_launch

        return score_in_launch(job, force=force, reporter=reporter)
    target = Target.of(job)
    if dry_run:
        return _estimate(job, target, reporter)
    with artifacts.locked(output):
        fresh = None if force else up_to_date(output, target.key, reporter)
        if fresh:
            return fresh
        started = time.monotonic()
        with open_job_data(job, reporter) as dataset:
            prepare(job, dataset, target, force, reporter)
            started -= spent.earlier(output)
            if ranks > 1:
                _launch(job, ranks, hostfile)
                known = target.known(job)
            else:
                known = target.known(job)
                work(job, dataset, target, known, workers.World(0, 1, 0), reporter)
            return finish(job, dataset, target, known, time.monotonic() - started, reporter)


def _estimate(job: Job, target: Target, reporter: Reporter) -> artifacts.Header:
    from stages.score.estimate import estimate

    with open_job_data(job, reporter) as dataset:
        stats = estimate(job, dataset, target, target.known(job), reporter)
    reporter.message(
        f"would compute {stats['compute']:,} of {stats['rows']:,} rows: {stats['tokens']:,} tokens, "
        f"{stats['flops']:.3g} FLOPs, {stats['bytes'] / 1e6:,.1f} MB on disk, "
        f"about {duration(stats['seconds'])} at {stats['tokens_per_second'] or 0:,.0f} tokens/s"
    )
    return artifacts.Header("signatures", target.key, asdict(job.settings), [], stats)


def measure_fidelity(
    data: Sequence[str],
    model: str,
    *,
    settings: ScoreSettings = ScoreSettings(),
    options: DataOptions = DataOptions(),
    sample: int = 256,
    goal: float = 0.9,
    trust_remote_code: bool = False,
    reporter: Reporter = Silent(),
) -> dict[str, Any]:
    """Signatures against exact gradients on a sample of the data; see ``estimate.measure``.

    Args:
        data, model, settings, options, trust_remote_code, reporter: as in ``score``; of the settings
            the rendering counts.
        sample: examples to look at.
        goal: rank correlation with exact gradients that the recommended setting reaches.

    Raises:
        as ``score`` does.
    """
    from stages.score.estimate import measure

    job = Job(
        data=tuple(data),
        model=model,
        output=Path("unused"),
        settings=settings,
        options=options,
        proxy=None,
        checkpoints=(),
        reuse=(),
        batch_tokens=None,
        block_rows=None,
        trust_remote_code=trust_remote_code,
        allow_partial=True,
    )
    with open_job_data(job, reporter) as dataset:
        return measure(job, dataset, Target.of(job), sample, goal, reporter)


def up_to_date(output: Path, key: str, reporter: Reporter) -> artifacts.Header | None:
    """The header when the output is fresh, having said so; else None."""
    fresh = artifacts.fresh_header(output, "signatures", key)
    if fresh:
        artifacts.touch(output, "signatures")
        reporter.message(f"{output} is up to date")
    return fresh


def open_job_data(job: Job, reporter: Reporter) -> Dataset:
    """The job's examples, all of them validated."""
    rejected = job.output.with_name(job.output.name + ".rejected.jsonl")
    dataset = open_dataset(job.data, job.options, rejected=rejected)
    reporter.message(
        f"read {len(dataset):,} rows of shape {dataset.shape} from {len(dataset.sources)} source(s)"
    )
    if dataset.rejected:
        reporter.warn(f"{dataset.rejected:,} unusable rows left out; reasons in {rejected}")
    return dataset


def prepare(job: Job, dataset: Dataset, target: Target, force: bool, reporter: Reporter) -> None:
    """Opens or creates the half-done artifact, which the ranks then fill, and warms the model up."""
    from stages.score import blocks, loading, resuming, warmup

    loading.check_turns(job, dataset)
    dims = loading.dims(job, target.signing)
    group = resuming.open_partial(
        job.output, len(dataset), dims, job.block_rows, target.key, force, target.facts
    )
    done = int((group["status"][:] != blocks.PENDING).sum())
    if done:
        reporter.message(f"resuming: {done:,} of {len(dataset):,} rows were scored before")
    if job.settings.warmup_fraction and done < len(dataset):
        warmup.warm_up(job, dataset, target.signing[-1], target.key, reporter)


def work(
    job: Job,
    dataset: Dataset,
    target: Target,
    known: Known,
    place: workers.World,
    reporter: Reporter,
) -> None:
    """Computes one rank's share of the blocks."""
    from formats.blocks import open_writable
    from stages.score.blocks import Share, fill

    fill(
        open_writable(artifacts.partial(job.output)),
        dataset,
        job,
        target.signing,
        known=known,
        share=Share(place.rank, place.size),
        reporter=reporter,
    )


def _launch(job: Job, ranks: int, hostfile: Path | None) -> None:
    from stages.launch import launch

    folder = job.output.absolute().with_name(job.output.name + ".work")
    folder.mkdir(exist_ok=True)
    try:
        artifacts.write_json(folder / "job.json", job.to_json())
        launch("stages.score.worker", folder, ranks=ranks, hostfile=hostfile)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_rank(folder: Path) -> None:
    """The body of a launched rank: its share of the job described in the folder."""
    job = Job.from_json(json.loads((folder / "job.json").read_text(encoding="utf-8")))
    place = workers.world()
    reporter = Console() if place.rank == 0 else Silent()
    target = Target.of(job)
    with open_dataset(job.data, job.options) as dataset:
        work(job, dataset, target, target.known(job), place, reporter)


def finish(
    job: Job,
    dataset: Dataset,
    target: Target,
    known: Known,
    seconds: float,
    reporter: Reporter,
) -> artifacts.Header:
    """Writes the header, last of all, and puts the artifact into place."""
    from formats import blocks as arrays
    from stages.score import warmup
    from stages.score.blocks import copy_duplicates, statistics

    path = artifacts.partial(job.output)
    group = arrays.open_writable(path)
    copy_duplicates(group, dataset.ids)
    reused = int((known.find(dataset.ids) >= 0).sum())
    rendering = {
        "max_length": job.settings.max_length,
        "chat_template": job.settings.chat_template,
    }
    header = artifacts.Header(
        kind="signatures",
        key=target.key,
        params={**asdict(job.settings), "model": job.model, "proxy": job.proxy},
        inputs=[asdict(source) for source in dataset.sources],
        stats={**statistics(group), "reused": reused, "seconds": round(seconds, 2)},
        dataset=dataset.reference(job.output.parent),
        extra={"space": target.space, "space_id": digest(target.space), "rendering": rendering},
    )
    # Of killed writes, zarr's too.
    for leftover in (*path.rglob("*.partial"), *path.glob(".*.tmp")):
        leftover.unlink()
    try:
        arrays.seal(path, header.to_json())
        artifacts.commit(job.output)
    except OSError as error:
        raise ArtifactError(f"cannot write {job.output}: {error.strerror}") from error
    warmup.forget(job.output)
    _say(header, job.output, reporter)
    return replace(header, created_by=artifacts.created_by())


def _say(header: artifacts.Header, output: Path, reporter: Reporter) -> None:
    stats = header.stats
    reused = f" ({stats['reused']:,} reused)" if stats["reused"] else ""
    reporter.message(
        f"{output}: {stats['usable']:,} of {stats['rows']:,} rows usable{reused}, "
        f"{stats['tokens']:,} tokens, in {duration(stats['seconds'])}"
    )
    odd = {n: c for n, c in stats["status"].items() if c and n not in ("ok", "truncated")}
    if odd:
        listing = ", ".join(f"{count:,} {name}" for name, count in odd.items())
        reporter.warn(f"rows without a signature of their own: {listing}")
    if stats["large_norms"]:
        reporter.warn(f"{stats['large_norms']:,} rows have a norm above 10 times the median")
