"""The score stage: keys, freshness, and who computes what."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.data import DataOptions, Dataset, find_sources, open_dataset
from formats.errors import ArtifactError, SettingError
from formats.fingerprints import digest
from stages import models, workers
from stages.reporting import Console, Reporter, Silent, duration

VERSION = 1  # raise by hand when equal inputs would give other signatures

KINDS = ("gradient", "head")


@dataclass(frozen=True)
class ScoreSettings:
    """What decides a signature, besides data and model.

    Attributes:
        kind: ``gradient`` (all layers, one backward pass) or ``head`` (forward only).
        rank: projection rank k.
        dims: D, numbers kept of each signature.
        layers: ``all``, ``last:N`` or a regular expression over module names (gradient only).
        max_length: tokens per example; longer ones are cut on the right.
        chat_template: text of a Jinja template that replaces the tokenizer's own.
        dtype: of the computation: auto, float32, bfloat16, float16.
        seed: of the random projections.

    Raises:
        SettingError: a value makes no sense.
    """

    kind: str = "gradient"
    rank: int = 64
    dims: int = 4096
    layers: str = "all"
    max_length: int = 1024
    chat_template: str | None = None
    dtype: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SettingError(f"--kind {self.kind!r} is unknown", fix=f"use {' or '.join(KINDS)}")
        if self.kind == "head" and self.layers != "all":
            raise SettingError("--layers goes with --kind gradient", fix="drop --layers")
        for name in ("rank", "dims", "max_length"):
            if getattr(self, name) < 1:
                raise SettingError(f"--{name.replace('_', '-')} must be at least 1")


@dataclass(frozen=True)
class _Job:
    """All a rank needs to know; the parameters of ``score``."""

    data: tuple[str, ...]
    model: str
    output: Path
    settings: ScoreSettings
    options: DataOptions
    reuse: tuple[Path, ...]
    batch_tokens: int | None
    block_rows: int | None
    trust_remote_code: bool

    def files(self) -> models.ModelFiles:
        return models.find_model(self.model)

    def key(self, files: models.ModelFiles) -> str:
        """Content of data and model, and every setting that changes a signature."""
        inputs = {
            "data": [sha256 for _, sha256 in find_sources(self.data, self.options)],
            "options": self.options.to_json(),
            "space": signature_space(files, self.settings),
            "dtype": self.settings.dtype,
        }
        return artifacts.stage_key("score", VERSION, params=asdict(self.settings), inputs=inputs)

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "output": str(self.output.absolute()),
            "reuse": [str(path.absolute()) for path in self.reuse],
            "settings": asdict(self.settings),
            "options": self.options.to_json(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> _Job:
        read = {
            "data": tuple(value["data"]),
            "output": Path(value["output"]),
            "reuse": tuple(Path(path) for path in value["reuse"]),
            "settings": ScoreSettings(**value["settings"]),
            "options": DataOptions.from_json(value["options"]),
        }
        return cls(**{**value, **read})


def score(
    data: Sequence[str],
    model: str,
    output: Path,
    *,
    settings: ScoreSettings = ScoreSettings(),
    options: DataOptions = DataOptions(),
    reuse: Sequence[Path] = (),
    ranks: int = 1,
    hostfile: Path | None = None,
    batch_tokens: int | None = None,
    block_rows: int | None = None,
    trust_remote_code: bool = False,
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
        reuse: other ``signatures.zarr`` of the same space; rows of equal content are copied from
            them, and from the output's own last version.
        ranks: processes to compute with; ignored inside a launch (torchrun, DeepSpeed, srun).
        hostfile: machines to run the ranks on, as DeepSpeed reads it.
        batch_tokens: padded tokens in a batch; by default 4,096 on a CPU and 16,384 on a GPU.
        block_rows: rows in a stored block, the unit of resuming; by default about 1/64 of the rows.
        trust_remote_code: let a model's own code run.
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
    job = _Job(
        tuple(data),
        model,
        output,
        settings,
        options,
        tuple(reuse),
        batch_tokens,
        block_rows,
        trust_remote_code,
    )
    if workers.inside_launch():
        from stages.score.launched import score_in_launch

        return score_in_launch(job, force=force, reporter=reporter)
    files = job.files()
    key = job.key(files)
    with artifacts.locked(output):
        fresh = None if force else up_to_date(output, key, reporter)
        if fresh:
            return fresh
        started = time.monotonic()
        with open_job_data(job, reporter) as dataset:
            prepare(job, dataset, key, force, reporter)
            if ranks > 1:
                _launch(job, ranks, hostfile)
            else:
                work(job, dataset, files, workers.World(0, 1, 0), reporter)
            return finish(job, dataset, files, key, time.monotonic() - started, reporter)


def up_to_date(output: Path, key: str, reporter: Reporter) -> artifacts.Header | None:
    """The header when the output is fresh, having said so; else None."""
    fresh = artifacts.fresh_header(output, "signatures", key)
    if fresh:
        artifacts.touch(output, "signatures")
        reporter.message(f"{output} is up to date")
    return fresh


def open_job_data(job: _Job, reporter: Reporter) -> Dataset:
    """The job's examples, all of them validated."""
    rejected = job.output.with_name(job.output.name + ".rejected.jsonl")
    dataset = open_dataset(job.data, job.options, rejected=rejected)
    reporter.message(
        f"read {len(dataset):,} rows of shape {dataset.shape} from {len(dataset.sources)} source(s)"
    )
    if dataset.rejected:
        reporter.warn(f"{dataset.rejected:,} unusable rows left out; reasons in {rejected}")
    return dataset


def prepare(job: _Job, dataset: Dataset, key: str, force: bool, reporter: Reporter) -> None:
    """Opens or creates the half-done artifact, which the ranks then fill."""
    from stages.score import blocks

    group = blocks.open_partial(
        job.output, len(dataset), job.settings.dims, job.block_rows, key, force
    )
    done = int((group["status"][:] != blocks.PENDING).sum())
    if done:
        reporter.message(f"resuming: {done:,} of {len(dataset):,} rows were scored before")


def work(
    job: _Job,
    dataset: Dataset,
    files: models.ModelFiles,
    place: workers.World,
    reporter: Reporter,
) -> None:
    """Computes one rank's share of the blocks."""
    import zarr

    from stages.score.blocks import Share, fill
    from stages.score.reuse import open_known

    fill(
        zarr.open_group(artifacts.partial(job.output), mode="r+"),
        dataset,
        files,
        settings=job.settings,
        known=open_known(job.output, job.reuse, signature_space(files, job.settings)),
        share=Share(place.rank, place.size),
        batch_tokens=job.batch_tokens,
        trust_remote_code=job.trust_remote_code,
        reporter=reporter,
    )


def _launch(job: _Job, ranks: int, hostfile: Path | None) -> None:
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
    job = _Job.from_json(json.loads((folder / "job.json").read_text(encoding="utf-8")))
    place = workers.world()
    reporter = Console() if place.rank == 0 else Silent()
    with open_dataset(job.data, job.options) as dataset:
        work(job, dataset, job.files(), place, reporter)


def finish(
    job: _Job,
    dataset: Dataset,
    files: models.ModelFiles,
    key: str,
    seconds: float,
    reporter: Reporter,
) -> artifacts.Header:
    """Writes the header, last of all, and puts the artifact into place."""
    import zarr

    from formats import blocks as arrays
    from stages.score.blocks import copy_duplicates, statistics

    path = artifacts.partial(job.output)
    group = zarr.open_group(path, mode="r+")
    copy_duplicates(group, dataset.ids)
    space = signature_space(files, job.settings)
    rendering = {
        "max_length": job.settings.max_length,
        "chat_template": job.settings.chat_template,
    }
    header = artifacts.Header(
        kind="signatures",
        key=key,
        params={**asdict(job.settings), "model": job.model},
        inputs=[asdict(source) for source in dataset.sources],
        stats={**statistics(group), "seconds": round(seconds, 2)},
        dataset=dataset.reference(job.output.parent),
        extra={"space": space, "space_id": digest(space), "rendering": rendering},
    )
    try:
        arrays.seal(path, header.to_json())
        artifacts.commit(job.output)
    except OSError as error:
        raise ArtifactError(f"cannot write {job.output}: {error.strerror}") from error
    _say(header, job.output, reporter)
    return replace(header, created_by=artifacts.created_by())


def signature_space(files: models.ModelFiles, settings: ScoreSettings) -> dict[str, Any]:
    """All that makes two signatures comparable (DESIGN section 2)."""
    from formats.rendering import RENDERING_VERSION

    template = settings.chat_template
    return {
        "model": files.weights_sha256,
        "tokenizer": files.tokenizer_sha256,
        "rendering": RENDERING_VERSION,
        "chat_template": digest(template) if template else "of the tokenizer",
        "max_length": settings.max_length,
        "loss": "mean over response tokens",
        "kind": settings.kind,
        "layers": settings.layers,
        "rank": settings.rank,
        "dims": settings.dims,
        "seed": settings.seed,
    }


def _say(header: artifacts.Header, output: Path, reporter: Reporter) -> None:
    stats = header.stats
    reporter.message(
        f"{output}: {stats['usable']:,} of {stats['rows']:,} rows usable, "
        f"{stats['tokens']:,} tokens, in {duration(stats['seconds'])}"
    )
    odd = {n: c for n, c in stats["status"].items() if c and n not in ("ok", "truncated")}
    if odd:
        listing = ", ".join(f"{count:,} {name}" for name, count in odd.items())
        reporter.warn(f"rows without a signature of their own: {listing}")
    if stats["large_norms"]:
        reporter.warn(f"{stats['large_norms']:,} rows have a norm above 10 times the median")
