"""The score stage: keys, freshness, resuming, and the walk over blocks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.data import DataOptions, Dataset, find_sources, open_dataset
from formats.errors import ArtifactError, SettingError
from formats.fingerprints import digest
from stages import models
from stages.reporting import Reporter, Silent, duration

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


def score(
    data: Sequence[str],
    model: str,
    output: Path,
    *,
    settings: ScoreSettings = ScoreSettings(),
    options: DataOptions = DataOptions(),
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
        ArtifactError: the output cannot be written, or a half-done one has another key.
        OutputBusyError: another process writes the same output.
    """
    files = models.find_model(model)
    sources = find_sources(data, options)
    space = signature_space(files, settings)
    inputs = {
        "data": [sha256 for _, sha256 in sources],
        "options": {**asdict(options), "fields": [list(pair) for pair in options.fields]},
        "space": space,
        "dtype": settings.dtype,
    }
    key = artifacts.stage_key("score", VERSION, params=asdict(settings), inputs=inputs)
    with artifacts.locked(output):
        fresh = None if force else artifacts.fresh_header(output, "signatures", key)
        if fresh:
            artifacts.touch(output, "signatures")
            reporter.message(f"{output} is up to date")
            return fresh
        rejected = output.with_name(output.name + ".rejected.jsonl")
        with open_dataset(data, options, rejected=rejected) as dataset:
            _say_what_was_read(dataset, rejected, reporter)
            from stages.score.blocks import write_blocks

            started = time.monotonic()
            tokenizer = models.load_tokenizer(files, trust_remote_code=trust_remote_code)
            plan = write_blocks(
                dataset,
                tokenizer,
                lambda dtype: models.load_model(
                    files, dtype=dtype, trust_remote_code=trust_remote_code
                ),
                output,
                key=key,
                settings=settings,
                batch_tokens=batch_tokens,
                block_rows=block_rows,
                force=force,
                reporter=reporter,
            )
            header = artifacts.Header(
                kind="signatures",
                key=key,
                params={**asdict(settings), "model": model},
                inputs=[asdict(source) for source in dataset.sources],
                stats={**plan, "seconds": round(time.monotonic() - started, 2)},
                dataset=dataset.reference(output.parent),
                extra={
                    "space": space,
                    "space_id": digest(space),
                    "rendering": {
                        "max_length": settings.max_length,
                        "chat_template": settings.chat_template,
                    },
                },
            )
            _seal(output, header)
    _say_what_came_out(header, output, reporter)
    return header


def signature_space(files: models.ModelFiles, settings: ScoreSettings) -> dict[str, Any]:
    """All that makes two signatures comparable (DESIGN section 2)."""
    from formats.rendering import RENDERING_VERSION

    return {
        "model": files.weights_sha256,
        "tokenizer": files.tokenizer_sha256,
        "rendering": RENDERING_VERSION,
        "chat_template": digest(settings.chat_template)
        if settings.chat_template
        else "tokenizer's",
        "max_length": settings.max_length,
        "loss": "mean over response tokens",
        "kind": settings.kind,
        "layers": settings.layers,
        "rank": settings.rank,
        "dims": settings.dims,
        "seed": settings.seed,
    }


def _seal(output: Path, header: artifacts.Header) -> None:
    from formats import blocks

    try:
        blocks.seal(artifacts.partial(output), header.to_json())
        artifacts.commit(output)
    except OSError as error:
        raise ArtifactError(f"cannot write {output}: {error.strerror}") from error


def _say_what_was_read(dataset: Dataset, rejected: Path, reporter: Reporter) -> None:
    reporter.message(
        f"read {len(dataset):,} rows of shape {dataset.shape} from {len(dataset.sources)} source(s)"
    )
    if dataset.rejected:
        reporter.warn(f"{dataset.rejected:,} unusable rows left out; reasons in {rejected}")


def _say_what_came_out(header: artifacts.Header, output: Path, reporter: Reporter) -> None:
    stats = header.stats
    reporter.message(
        f"{output}: {stats['usable']:,} of {stats['rows']:,} rows usable, "
        f"{stats['tokens']:,} tokens in {duration(stats['seconds'])}"
    )
    odd = {n: c for n, c in stats["status"].items() if c and n not in ("ok", "truncated")}
    if odd:
        listing = ", ".join(f"{count:,} {name}" for name, count in odd.items())
        reporter.warn(f"rows without a signature of their own: {listing}")
    if stats["large_norms"]:
        reporter.warn(f"{stats['large_norms']:,} rows have a norm above 10 times the median")
