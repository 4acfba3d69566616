"""What decides an evaluation, the key that follows from it, and what a rank must know."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from formats.artifacts import stage_key
from formats.data import DataOptions
from formats.errors import ArtifactError, SettingError

VERSION = 1  # raise by hand when equal inputs would give other figures
JOB = "job.json"
NEW_TOKENS, NEW_TOKENS_OF_CODE = 64, 512


@dataclass(frozen=True)
class EvaluateSettings:
    """What decides the figures, besides data and model.

    Attributes:
        by: columns to group by, each for itself.
        generate: compare greedy answers with the references.
        max_new_tokens: of an answer; 64, or 512 with ``run_code``, unless given.
        choices: column with a row's choices; rows that have it get their choices compared.
        answer: column with the right one: its index from 0, its letter, or its text.
        run_code: run greedy programs with their tests.
        tests: column with the tests, a text or a list of them.
        setup: column with code to run before the tests, if any.
        show_tests: put the tests behind the question, as is usual for MBPP.
        code_seconds: for one program, by the clock and of the processor.
        code_memory: MiB of address space for one program.
        allow_network: run programs also where they cannot be shut in.
        tasks: of the lm-evaluation-harness; patterns such as ``mmlu_*`` too.
        task_folder: folder of task definitions (YAML) of one's own; its files are part of the key.
        task_limit: examples of each task.
        max_length: tokens per example; as trained, or 1,024.
        chat_template: text of a Jinja template; as trained, or the tokenizer's own.
        dtype: of the computation: auto, float32, bfloat16, float16.
        samples: bootstrap resamples.
        seed: of the bootstrap.
    """

    by: tuple[str, ...] = ()
    generate: bool = False
    max_new_tokens: int | None = None
    choices: str = "choices"
    answer: str = "answer"
    run_code: bool = False
    tests: str = "test_list"
    setup: str = "test_setup_code"
    show_tests: bool = False
    code_seconds: float = 10.0
    code_memory: int = 1024
    allow_network: bool = False
    tasks: tuple[str, ...] = ()
    task_folder: str | None = None
    task_limit: int | None = None
    max_length: int | None = None
    chat_template: str | None = None
    dtype: str = "auto"
    samples: int = 1000
    seed: int = 0

    def check(self) -> None:
        """Looks at each value by itself.

        Raises:
            SettingError: some are out of range; all of them are named at once.
        """
        checks = (
            (self.max_new_tokens is None or self.max_new_tokens > 0, "max_new_tokens", "1 or more"),
            (self.code_seconds > 0, "code_seconds", "above 0"),
            (self.code_memory >= 64, "code_memory", "64 or more"),
            (self.task_limit is None or self.task_limit > 0, "task_limit", "1 or more"),
            (self.max_length is None or self.max_length > 1, "max_length", "2 or more"),
            (self.samples >= 100, "samples", "100 or more"),
            (self.seed >= 0, "seed", "0 or more"),
        )
        wrong = [
            f"{name} is {getattr(self, name)!r}, it must be {rule}"
            for good, name, rule in checks
            if not good
        ]
        if self.show_tests and not self.run_code:
            wrong.append("show_tests needs run_code")
        if len(set(self.by)) < len(self.by):
            wrong.append(f"by names a column twice: {', '.join(self.by)}")
        if wrong:
            raise SettingError("; ".join(wrong))

    def changed(self) -> dict[str, Any]:
        """The parameters that differ from their defaults; a path changes nothing."""
        values = asdict(self)
        names = [field.name for field in fields(self) if values[field.name] != field.default]
        return {name: values[name] for name in names if name != "task_folder"}

    @property
    def new_tokens(self) -> int:
        """Tokens generated at most."""
        usual = NEW_TOKENS_OF_CODE if self.run_code else NEW_TOKENS
        return self.max_new_tokens or usual

    @property
    def generates(self) -> bool:
        """Whether answers are generated at all."""
        return self.generate or self.run_code


@dataclass(frozen=True)
class Job:
    """One evaluation, worked out once and then the same for every rank and every resumption.

    Attributes:
        key: of the result; what is half done belongs to it.
        inputs: content hashes of all that is read, part of the key.
        model: where the weights and the tokenizer are.
        dataset: how to open the rows again, with absolute paths; None when there are none.
        settings: what decides the figures, ``max_length`` and ``chat_template`` resolved.
        batch_tokens: padded tokens in a batch.
        threads: that every process computes with: the last bits of a product depend on them.
        trust_remote_code: let the model's own code run.
        quiet: the ranks say warnings only.
    """

    key: str
    inputs: dict[str, Any]
    model: str
    dataset: dict[str, Any] | None
    settings: EvaluateSettings
    batch_tokens: int
    threads: int
    trust_remote_code: bool
    quiet: bool

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; ``from_json`` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Job:
        """What ``to_json`` wrote."""
        values = raw["settings"]
        lists = {name: tuple(values[name]) for name in ("by", "tasks")}
        return cls(**{**raw, "settings": EvaluateSettings(**{**values, **lists})})

    @classmethod
    def read(cls, folder: Path) -> Job:
        """The job a half-done evaluation belongs to.

        Raises:
            ArtifactError: nothing readable is there.
        """
        try:
            return cls.from_json(json.loads((folder / JOB).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ArtifactError(
                f"{folder / JOB} does not say which evaluation was being made there",
                fix="begin again with --force",
            ) from error

    def differences(self, other: Job) -> list[str]:
        """What makes this one's key another than the other one's, in words."""
        mine, theirs = asdict(self.settings), asdict(other.settings)
        words = [
            f"{name} {theirs[name]!r} instead of {mine[name]!r}"
            for name in mine
            if mine[name] != theirs[name]
        ]
        names = sorted(self.inputs.keys() | other.inputs.keys())
        return words + [
            f"another {name}" for name in names if self.inputs.get(name) != other.inputs.get(name)
        ]


def evaluation_key(settings: EvaluateSettings, inputs: dict[str, Any]) -> str:
    """The key of the evaluation that these settings and contents give."""
    return stage_key("evaluate", VERSION, params=settings.changed(), inputs=inputs)


def key_inputs(
    model: str, tokenizer: str, data: list[str], options: DataOptions, trained_on: str | None
) -> dict[str, Any]:
    """Content hashes of all that is read.

    Args:
        trained_on: hash of the allocation whose rows were looked for in the data, if they were.
    """
    inputs: dict[str, Any] = {"model": model, "tokenizer": tokenizer}
    if data:
        inputs |= {"data": data, "options": options.to_json()}
    if trained_on:
        inputs["training_rows"] = trained_on
    return inputs
