"""What one training run was asked to do, in a form that travels to the workers as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.artifacts import stage_key
from formats.errors import ArtifactError, SettingError

FILE = "settings.json"
SCHEDULES = ("cosine", "linear", "constant")
LOSS_PER = ("example", "token")
DTYPES = ("auto", "float32", "bfloat16", "float16")
OFFLOADS = ("optimizer", "parameters")
QUANTIZATIONS = ("4bit",)


@dataclass(frozen=True)
class Settings:
    """All of ``train``'s arguments, checked, with paths made absolute.

    ``None`` means "not said": the DeepSpeed configuration file decides, else the default.

    Attributes:
        data: files that replace, one by one, those the allocation names; empty to use these.
        deepspeed: content of the DeepSpeed configuration file, ``None`` without one.
        deepspeed_path: its path, for messages.
        quiet: the workers say warnings only.
        checkpoint_every, checkpoint_minutes: steps or minutes between two checkpoints.
        keep: how many of the newest checkpoints stay.
        loss_per: what counts alike, every example or every token.
        lora, lora_alpha, lora_dropout: rank, scale and dropout of adapters; no rank, no adapters.
        eval_data, eval_every: files to evaluate on before, after, and every so many steps.
        patience: evaluations in a row that bring nothing better before training stops.
        keep_best: the model of the best evaluation is kept, not the last one.
        offload: what DeepSpeed keeps in the machine's memory instead of the GPU's.
        quantize: how the frozen weights beside the adapters are held.
        init_from: the run whose model is trained on; ``model`` is then that run's.
        resume: go on from the newest checkpoint, if there is one.
        key: the run's key, once it is known.
        inputs: content hashes of what is read, part of the key.
    """

    allocation: str
    model: str
    output: str
    learning_rate: float | None
    warmup: float
    weight_decay: float | None
    schedule: str
    clip: float | None
    zero_stage: int | None
    deepspeed: dict[str, Any] | None
    deepspeed_path: str
    dtype: str
    gradient_checkpointing: bool
    seed: int
    max_length: int | None
    data: tuple[str, ...]
    quiet: bool
    checkpoint_every: int | None = None
    checkpoint_minutes: float | None = None
    keep: int = 2
    loss_per: str = "example"
    lora: int | None = None
    lora_alpha: float | None = None
    lora_dropout: float = 0.0
    eval_data: tuple[str, ...] = ()
    eval_every: int | None = None
    patience: int | None = None
    keep_best: bool = False
    offload: str | None = None
    quantize: str | None = None
    init_from: str | None = None
    resume: bool = False
    key: str = ""
    inputs: dict[str, str] = field(default_factory=dict)

    def check(self, *, force: bool = False) -> None:
        """Looks at each value by itself.

        Raises:
            SettingError: some are out of range; all of them are named at once.
        """
        checks = (
            (self.learning_rate is None or self.learning_rate > 0, "learning_rate", "above 0"),
            (0 <= self.warmup < 1, "warmup", "a part of the steps, 0 to below 1"),
            (self.weight_decay is None or self.weight_decay >= 0, "weight_decay", "0 or more"),
            (self.schedule in SCHEDULES, "schedule", "one of " + ", ".join(SCHEDULES)),
            (self.clip is None or self.clip >= 0, "clip", "0 (no clipping) or more"),
            (self.zero_stage in (None, 0, 1, 2, 3), "zero_stage", "0, 1, 2 or 3"),
            (self.dtype in DTYPES, "dtype", "one of " + ", ".join(DTYPES)),
            (self.max_length is None or self.max_length > 1, "max_length", "2 or more"),
            (
                self.checkpoint_every is None or self.checkpoint_every > 0,
                "checkpoint_every",
                "1 or more",
            ),
            (
                self.checkpoint_minutes is None or self.checkpoint_minutes > 0,
                "checkpoint_minutes",
                "above 0",
            ),
            (self.keep > 0, "keep", "1 or more"),
            (self.loss_per in LOSS_PER, "loss_per", "one of " + ", ".join(LOSS_PER)),
            (self.lora is None or self.lora > 0, "lora", "1 or more"),
            (self.lora_alpha is None or self.lora_alpha > 0, "lora_alpha", "above 0"),
            (0 <= self.lora_dropout < 1, "lora_dropout", "0 to below 1"),
            (self.eval_every is None or self.eval_every > 0, "eval_every", "1 or more"),
            (self.patience is None or self.patience > 0, "patience", "1 or more"),
        )
        wrong = [
            f"{name} is {getattr(self, name)!r}, it must be {rule}"
            for good, name, rule in checks
            if not good
        ]
        if (self.eval_every or self.patience or self.keep_best) and not self.eval_data:
            wrong.append("eval_every, patience and keep_best need eval_data")
        wrong += self._check_memory()
        if self.patience and not self.eval_every:
            wrong.append("patience needs eval_every")
        if self.resume and force:
            wrong.append("resume goes on with a run, force begins it again; give one of them")
        if wrong:
            raise SettingError("; ".join(wrong))

    def _check_memory(self) -> list[str]:
        """What is wrong with the ways to save the GPU's memory."""
        wrong = []
        for name, known in (("offload", OFFLOADS), ("quantize", QUANTIZATIONS)):
            if (value := getattr(self, name)) not in (None, *known):
                wrong.append(f"{name} is {value!r}, it must be one of {', '.join(known)}")
        if self.offload == "parameters" and self.zero_stage not in (None, 3):
            wrong.append(f"offload parameters needs zero_stage 3, it is {self.zero_stage}")
        if self.offload == "optimizer" and self.zero_stage == 0:
            wrong.append("offload optimizer needs zero_stage 1, 2 or 3, it is 0")
        if self.quantize and not self.lora:
            wrong.append("quantize needs lora: quantized weights stay as they are")
        if self.quantize and self.zero_stage == 3:
            wrong.append("quantize needs zero_stage 0, 1 or 2, it is 3")
        return wrong

    def params(self) -> dict[str, Any]:
        """The parameters that change what is in the run; the others change speed, memory, messages."""
        names = (
            "learning_rate",
            "warmup",
            "weight_decay",
            "schedule",
            "clip",
            "dtype",
            "seed",
            "max_length",
            "deepspeed",
            "loss_per",
            "lora",
            "lora_alpha",
            "lora_dropout",
            "eval_every",
            "patience",
            "keep_best",
        )
        # What came later is left out where it is not used, so that older runs keep their keys.
        later = {"quantize": self.quantize} if self.quantize else {}
        return {name: getattr(self, name) for name in names} | later

    def shown(self) -> dict[str, Any]:
        """All of them, for ``run.json``."""
        others = (
            *("allocation", "model", "output", "quiet", "init_from", "resume", "key", "inputs"),
        )
        return {name: value for name, value in asdict(self).items() if name not in others}

    def with_key(self, version: int, inputs: dict[str, str]) -> Settings:
        """The same with the run's key: of the parameters, and the content hashes of the inputs."""
        key = stage_key("train", version, params=self.params(), inputs=inputs)
        return replace(self, key=key, inputs=inputs)

    def differences(self, other: Settings) -> list[str]:
        """What makes this one's key another than the other one's, in words."""
        mine = {**self.params(), **self.inputs}
        theirs = {**other.params(), **other.inputs}
        changed = [n for n in {**mine, **theirs} if mine.get(n) != theirs.get(n)]
        return [
            f"another {name}"
            if name in {**self.inputs, **other.inputs}
            else f"{name} {mine.get(name)!r} instead of {theirs.get(name)!r}"
            for name in changed
        ]

    def write(self, folder: Path) -> None:
        """Leaves the settings in the work folder, for the workers."""
        artifacts.write_json(folder / FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """What ``write`` left.

        Raises:
            ArtifactError: nothing, or something this version does not understand.
        """
        try:
            return cls.from_json(json.loads((folder / FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ArtifactError(
                f"{folder / FILE} does not say which run was being built there",
                fix="begin again with --force",
            ) from error

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Settings:
        """The settings that ``asdict`` made into JSON."""
        lists = {name: tuple(raw[name]) for name in ("data", "eval_data")}
        return cls(**{**raw, **lists})
