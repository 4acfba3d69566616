"""train: DeepSpeed data-parallel fine-tuning of a model on an allocation, every loss weight applied."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.allocation import Allocation
from formats.artifacts import Header
from formats.errors import SettingError
from formats.fingerprints import digest
from formats.kinds import artifact_path
from stages.models import ModelFiles, find_model
from stages.reporting import Reporter, Silent, duration
from stages.train import config, monitors, running
from stages.train import quantize as quantization
from stages.train.settings import Settings
from stages.workers import inside_launch, world

VERSION = 1


def train(
    allocation: Path | str,
    model: Path | str | None,
    output: Path | str,
    *,
    init_from: Path | str | None = None,
    learning_rate: float | None = None,
    warmup: float = 0.03,
    weight_decay: float | None = None,
    schedule: str = "cosine",
    clip: float | None = None,
    zero_stage: int | None = None,
    deepspeed: Path | str | None = None,
    dtype: str = "auto",
    offload: str | None = None,
    gradient_checkpointing: bool = False,
    seed: int = 0,
    max_length: int | None = None,
    data: Sequence[Path | str] = (),
    loss_per: str = "example",
    lora: int | None = None,
    lora_alpha: float | None = None,
    lora_dropout: float = 0.0,
    quantize: str | None = None,
    eval_data: Sequence[Path | str] = (),
    eval_every: int | None = None,
    patience: int | None = None,
    keep_best: bool = False,
    hostfile: Path | str | None = None,
    checkpoint_every: int | None = None,
    checkpoint_minutes: float | None = None,
    keep: int = 2,
    resume: bool = False,
    force: bool = False,
    reporter: Reporter | None = None,
) -> Header:
    """Fine-tunes a model with as many DeepSpeed ranks as the allocation has.

    One optimizer step minimises (1/B) sum_i w_i l_i over its B = ranks x accumulation x micro-batch
    places, l_i the mean loss of example i's response tokens (DESIGN section 6). In a process started by
    torchrun, srun or DeepSpeed this is one of the ranks; otherwise the ranks are started from here.

    Args:
        allocation: the folder ``allocate`` wrote.
        model: folder, GGUF file or Hugging Face name; not read where ``init_from`` is given.
        output: the run folder: ``model/``, ``metrics.jsonl``, ``run.json`` (see ``formats.runs``).
        init_from: a finished run; its ``model/`` is trained on, with its tokenizer and a new optimizer.
        learning_rate: the highest; 2e-5 unless given here or in the DeepSpeed file.
        warmup: part of the steps over which the rate rises.
        weight_decay: of matrices (not of biases and norms); 0 unless given.
        schedule: cosine, linear or constant, unless the DeepSpeed file has a scheduler.
        clip: gradient norm to clip at; 1.0 unless given here or a DeepSpeed file is used.
        zero_stage: 0 to 3; 2 (3 to offload parameters) unless given here or a DeepSpeed file is used.
        deepspeed: a DeepSpeed configuration file; batch sizes come from the allocation.
        dtype: auto (bfloat16 where the GPU has it, else float32), float32, bfloat16 or float16.
        offload: ``optimizer`` keeps the optimizer's state in the machine's memory and updates there;
            ``parameters`` keeps the weights there too.
        gradient_checkpointing: compute activations twice to hold fewer.
        seed: of dropout and newly made weights.
        max_length: tokens per example; as the allocation was made unless given.
        data: where the data files are now, one for each that the allocation names.
        loss_per: ``example`` as above; ``token`` minimises (1 / (B n)) sum_i w_i sum_t l_it, n the mean
            number of response tokens of the plan's examples: every supervised token counts alike.
        lora: rank of LoRA adapters at all linear layers; the rest of the model is frozen. ``model/`` then
            has them added in, ``adapter/`` has them alone. Needs the ``lora`` extra.
        lora_alpha: their scale; twice the rank unless given.
        lora_dropout: dropout before them.
        quantize: ``4bit`` holds the frozen weights beside the adapters in 4 bits (QLoRA). Needs the
            ``qlora`` extra and a CUDA GPU.
        eval_data: files to evaluate on, per source, before and after; read as the training data are.
        eval_every: steps between two evaluations meanwhile.
        patience: stop after so many evaluations in a row that bring no better loss.
        keep_best: ``model/`` is the one with the best evaluation, not the last one.
        hostfile: machines to run on, ``name slots=N`` lines; this one without it.
        checkpoint_every: steps between two checkpoints.
        checkpoint_minutes: minutes between two checkpoints.
        keep: how many of the newest checkpoints stay.
        resume: go on where a stopped or killed run of the same settings wrote its last checkpoint.
        force: train again even when the output is up to date, and drop a stopped run's checkpoints.
        reporter: hears messages and progress.

    Returns:
        the header of ``run.json``; ``stats`` holds totals, seconds, memory and versions.

    Raises:
        SettingError: a value is out of range or contradicts another, or the number of ranks is wrong.
        ArtifactError: the allocation is missing, incomplete or damaged.
        DataChangedError: the data are no longer those of the allocation.
        ModelError: the model or tokenizer cannot be loaded.
        NotFiniteError: a loss or gradient is NaN or infinite; ``data`` has step, rows and ids.
        OutputBusyError: another process writes this output.
        WorkerError: a rank failed otherwise.
        SystemExit: with 143, in a rank that got SIGTERM; a checkpoint was written.
    """
    reporter = (reporter or Silent()) if world().rank == 0 else Silent()
    output = Path(output).absolute()
    opened = Allocation.open(Path(allocation).absolute())
    model = first_model(model, init_from)
    files = find_model(model)
    settings = Settings(
        allocation=str(opened.path),
        model=str(Path(model).absolute()) if Path(model).exists() else str(model),
        output=str(output),
        learning_rate=learning_rate,
        warmup=warmup,
        weight_decay=weight_decay,
        schedule=schedule,
        clip=clip,
        zero_stage=zero_stage,
        deepspeed=config.read_file(Path(deepspeed)) if deepspeed else None,
        deepspeed_path=str(deepspeed or ""),
        dtype=dtype,
        gradient_checkpointing=gradient_checkpointing,
        seed=seed,
        max_length=max_length,
        data=tuple(str(Path(path).absolute()) for path in data),
        quiet=getattr(reporter, "quiet", True),
        checkpoint_every=checkpoint_every,
        checkpoint_minutes=checkpoint_minutes,
        keep=keep,
        resume=resume,
        loss_per=loss_per,
        lora=lora,
        lora_alpha=lora_alpha,
        lora_dropout=lora_dropout,
        eval_data=tuple(str(Path(path).absolute()) for path in eval_data),
        eval_every=eval_every,
        patience=patience,
        keep_best=keep_best,
        offload=offload,
        quantize=quantize,
        init_from=str(artifact_path(init_from).absolute()) if init_from else None,
    )
    settings.check(force=force)
    # Contradictions show before anything is started.
    monitors.check(config.build(settings, opened, "float32"), settings.deepspeed_path)
    settings = settings.with_key(VERSION, _inputs(settings, opened.header.key, files))
    header = None if force else artifacts.fresh_header(output, "run", settings.key)
    if header is not None:
        reporter.message(f"{output.name} is up to date")
        artifacts.touch(output, "run")
        return header
    if quantize:
        quantization.check()
    if inside_launch():
        running.take_part(settings, opened, output, force, reporter)
    else:
        running.start(settings, opened, output, force, Path(hostfile) if hostfile else None)
    header = artifacts.read_header(output, "run")
    reporter.message(_closing(output, header.stats))
    return header


def first_model(model: Path | str | None, init_from: Path | str | None) -> Path | str:
    """The model that training begins with: that of the earlier run, where there is one.

    Raises:
        SettingError: neither is given.
        ArtifactError: there is no such run, or it is not finished.
    """
    if init_from:
        run = artifact_path(init_from)
        artifacts.read_header(run, "run")
        return run / "model"
    if model is None:
        raise SettingError(
            "there is no model to train", fix="name one with --model, or a run with --init-from"
        )
    return model


def expected(allocation: str, files: ModelFiles, **given: Any) -> tuple[dict[str, Any], str]:
    """The parameters and the key of the run that ``train`` would write, without opening anything.

    Args:
        allocation: the key of the allocation.
        files: the model; with ``init_from``, that run's takes its place.
        given: arguments of ``train``; those that are left out have their defaults.

    Raises:
        SettingError: a value is out of range, or the DeepSpeed file cannot be read.
    """
    arguments = {name: p.default for name, p in inspect.signature(train).parameters.items()} | given
    if arguments["init_from"]:
        files = find_model(first_model(None, arguments["init_from"]))
    names = {field.name for field in dataclasses.fields(Settings)} & arguments.keys()
    path = arguments["deepspeed"]
    here = {"allocation": "", "model": files.name, "output": "", "quiet": True}
    here["eval_data"] = tuple(str(path) for path in arguments["eval_data"])
    here["init_from"] = str(arguments["init_from"]) if arguments["init_from"] else None
    file = {
        "deepspeed": config.read_file(Path(path)) if path else None,
        "deepspeed_path": str(path),
    }
    settings = Settings(**{name: arguments[name] for name in names} | here | file)
    settings.check()
    return settings.params(), settings.with_key(VERSION, _inputs(settings, allocation, files)).key


def _inputs(settings: Settings, allocation: str, files: ModelFiles) -> dict[str, str]:
    """Content hashes of all that is read; ``allocation`` is its key."""
    inputs = {
        "allocation": allocation,
        "model": files.weights_sha256,
        "tokenizer": files.tokenizer_sha256,
    }
    if settings.init_from:
        inputs["init_from"] = artifacts.read_header(artifact_path(settings.init_from), "run").key
    if settings.eval_data:
        from formats.data import DataOptions, find_sources

        found = find_sources(settings.eval_data, DataOptions())
        inputs["eval_data"] = digest([sha256 for _, sha256 in found])
    return inputs


def _closing(output: Path, stats: dict[str, Any]) -> str:
    return (
        f"{output.name}: {stats['steps']:,} steps, loss {stats['first_loss']:.4f} -> "
        f"{stats['last_loss']:.4f}, {stats['tokens']:,} tokens in {duration(stats['train_seconds'])}"
    )
