"""The evaluate stage: is it up to date, and if not, make it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from formats import artifacts
from formats.data import DataOptions, open_dataset
from formats.errors import SettingError
from formats.evaluation import KIND
from stages import workers
from stages.evaluate.settings import EvaluateSettings
from stages.evaluate.target import Target
from stages.reporting import Reporter, Silent


def evaluate(
    model: Path | str,
    data: Sequence[str],
    output: Path | str,
    *,
    settings: EvaluateSettings = EvaluateSettings(),
    options: DataOptions = DataOptions(),
    ranks: int = 1,
    hostfile: Path | None = None,
    batch_tokens: int | None = None,
    allow_overlap: bool = False,
    trust_remote_code: bool = False,
    force: bool = False,
    reporter: Reporter = Silent(),
) -> artifacts.Header:
    """Writes ``evaluation.json``: losses, answers and choices of a model, example by example.

    An evaluation that is up to date costs hashing its inputs, so a comparison can call this for every
    model again and again; ``formats.evaluation.paired`` then sets the examples side by side.

    Args:
        model: a run folder, or a model folder, GGUF file or Hugging Face name.
        data: files, globs, folders or Hugging Face names; may be empty when there are tasks.
        output: the file to write; a killed evaluation goes on from ``<output>.partial``.
        settings: what decides the figures.
        options: how the data are read; a run's own fields where they say nothing.
        ranks: processes to compute with; the figures do not depend on it.
        hostfile: machines for the ranks, as DeepSpeed reads it.
        batch_tokens: padded tokens in a batch; by default 2,048 on a CPU and 8,192 on a GPU.
        allow_overlap: count rows that the run was trained on, too.
        trust_remote_code: let a model's own code run.
        force: again, even when the output is up to date or is half done with another key.
        reporter: where messages and progress go.

    Returns:
        The artifact's header; ``stats["overall"]`` has the figures over all examples.

    Raises:
        SettingError: a value is out of range, a column is missing, an extra is not installed, or
            programs cannot be shut in.
        DataError, BadRowsError: the data cannot be used, or the run was trained on some of their rows.
        ModelError: the model cannot be found, loaded, or does not fit.
        ArtifactError: the run's allocation cannot be read, the output cannot be written, or a half-done
            one has another key.
        NotFiniteError: a loss is NaN or infinite.
        OutputBusyError: another process writes the same output.
        WorkerError: a rank failed.
    """
    output = Path(output)
    target = Target.of(model, data, settings, options, allow_overlap)
    if workers.inside_launch():
        raise SettingError(
            "evaluate starts its own ranks and cannot be one of somebody else's",
            fix="start it once, with --ranks",
        )
    with artifacts.locked(output):
        fresh = None if force else artifacts.fresh_header(output, KIND, target.key)
        if fresh:
            reporter.message(f"{output} is up to date")
            artifacts.touch(output, KIND)
            return fresh
        began = time.monotonic()
        from stages.evaluate.making import Making

        evaluation = Making(target, output, allow_overlap, force, reporter)
        job = target.job(batch_tokens, trust_remote_code, getattr(reporter, "quiet", True))
        if not data:
            return evaluation.without_data(job, began)
        rejected = output.with_name(output.name + ".rejected.jsonl")
        with open_dataset(data, target.options, rejected=rejected) as dataset:
            return evaluation.run(job, dataset, ranks, hostfile, began)


def expected_key(
    model: Path | str,
    data: Sequence[str],
    settings: EvaluateSettings = EvaluateSettings(),
    options: DataOptions = DataOptions(),
    *,
    allow_overlap: bool = False,
) -> str:
    """The key of what ``evaluate`` would write; nothing is opened but what must be hashed.

    Raises:
        as ``evaluate``.
    """
    return Target.of(model, data, settings, options, allow_overlap).key
