"""What decides a signature, and the space and key that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.data import DataOptions, find_sources
from formats.errors import SettingError
from formats.fingerprints import digest
from stages import models

VERSION = 1  # raise by hand when equal inputs would give other signatures

KINDS = ("gradient", "head", "embedding", "loss", "trajectory")
_PROJECTED = ("gradient", "head")
WARM_UPS = ("full", "lora")
DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class ScoreSettings:
    """What decides a signature, besides data and model.

    Attributes:
        kind: ``gradient`` (all layers, one backward pass), ``head`` (forward only), or a control:
            ``embedding`` (mean hidden state), ``loss``, ``trajectory`` (losses at checkpoints).
        rank: projection rank k (gradient and head).
        dims: D, numbers kept of each signature (gradient and head).
        layers: ``all``, ``last:N`` or a regular expression over module names (gradient).
        max_length: tokens per example; longer ones are cut on the right.
        chat_template: text of a Jinja template that replaces the tokenizer's own.
        dtype: of the computation: auto, float32, bfloat16, float16.
        seed: of the random projections and of the warm-up.
        warmup_fraction: part of the rows a copy of the model is first trained on; 0 for none.
        warmup: ``full`` or ``lora`` (needs the ``lora`` extra), how it is trained.

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
    warmup_fraction: float = 0.0
    warmup: str = "full"

    def __post_init__(self) -> None:
        for flag, value, known in (
            ("kind", self.kind, KINDS),
            ("warmup", self.warmup, WARM_UPS),
            ("dtype", self.dtype, DTYPES),
        ):
            if value not in known:
                raise SettingError(
                    f"--{flag} {value!r} is unknown",
                    fix=f"use {', '.join(known[:-1])} or {known[-1]}",
                )
        if self.kind != "gradient" and self.layers != "all":
            raise SettingError("--layers goes with --kind gradient", fix="drop --layers")
        for name in ("rank", "dims", "max_length"):
            if getattr(self, name) < 1:
                raise SettingError(f"--{name.replace('_', '-')} must be at least 1")
        if not 0 <= self.warmup_fraction < 1:
            raise SettingError(
                f"--warmup-fraction {self.warmup_fraction} is out of range",
                fix="give a part of the rows, such as 0.05",
            )


@dataclass(frozen=True)
class Job:
    """All a rank needs to know; the parameters of ``score``.

    Attributes:
        proxy: a smaller model to compute signatures with; ``model`` then only counts tokens.
        checkpoints: further models, in training order, for the kind ``trajectory``.
        others: see ``score``.
    """

    data: tuple[str, ...]
    model: str
    output: Path
    settings: ScoreSettings
    options: DataOptions
    proxy: str | None
    checkpoints: tuple[str, ...]
    reuse: tuple[Path, ...]
    batch_tokens: int | None
    block_rows: int | None
    trust_remote_code: bool
    allow_partial: bool

    def check(self) -> None:
        """Raises SettingError when settings contradict each other."""
        if bool(self.checkpoints) != (self.settings.kind == "trajectory"):
            raise SettingError(
                "--checkpoint goes with --kind trajectory, and that needs at least one",
                fix="give both or neither",
            )

    def signing(self) -> list[models.ModelFiles]:
        """The models that signatures are computed with: one, or a trajectory's checkpoints."""
        names = self.checkpoints or (self.proxy or self.model,)
        return [models.find_model(name) for name in names]

    def counting(self) -> models.ModelFiles:
        """The model whose tokens are counted."""
        return models.find_model(self.model, weights=False)

    def key(self, space: dict[str, Any], content: Sequence[str]) -> str:
        """Content of data and models, and every setting that changes a signature."""
        return result_key(content, self.counting(), self.settings, self.options, space)

    def content(self) -> list[str]:
        """Hashes of the data."""
        return [sha256 for _, sha256 in find_sources(self.data, self.options)]

    def to_json(self) -> dict[str, Any]:
        """As JSON, for the ranks."""
        return {
            **vars(self),
            "output": str(self.output.absolute()),
            "reuse": [str(path.absolute()) for path in self.reuse],
            "settings": asdict(self.settings),
            "options": self.options.to_json(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Job:
        """What ``to_json`` wrote."""
        read = {
            "data": tuple(value["data"]),
            "output": Path(value["output"]),
            "checkpoints": tuple(value["checkpoints"]),
            "reuse": tuple(Path(path) for path in value["reuse"]),
            "settings": ScoreSettings(**value["settings"]),
            "options": DataOptions.from_json(value["options"]),
        }
        return cls(**{**value, **read})


def signature_space(
    signing: Sequence[models.ModelFiles], settings: ScoreSettings, content: Sequence[str]
) -> dict[str, Any]:
    """All that makes two signatures comparable (DESIGN section 2).

    A warm-up trains on the data themselves, so warmed-up signatures of two data sets never compare;
    warm a model up once with ``train`` and score with the result to share it.
    """
    from formats.rendering import RENDERING_VERSION

    template = settings.chat_template
    space: dict[str, Any] = {
        "model": _only([files.weights_sha256 for files in signing]),
        "tokenizer": _only([files.tokenizer_sha256 for files in signing]),
        "rendering": RENDERING_VERSION,
        "chat_template": digest(template) if template else "of the tokenizer",
        "max_length": settings.max_length,
        "loss": "mean over response tokens",
        "kind": settings.kind,
    }
    if settings.kind in _PROJECTED:
        names = ("layers", "rank", "dims", "seed")
        space |= {name: getattr(settings, name) for name in names}
    if settings.warmup_fraction:
        space["warmup"] = {
            "fraction": settings.warmup_fraction,
            "mode": settings.warmup,
            "seed": settings.seed,
            "data": list(content),
        }
    return space


def result_key(
    content: Sequence[str],
    counting: models.ModelFiles,
    settings: ScoreSettings,
    options: DataOptions,
    space: dict[str, Any],
) -> str:
    """The key of the signatures that ``score`` would write."""
    inputs = {
        "data": list(content),
        "options": options.to_json(),
        "counted_by": counting.tokenizer_sha256,
        "space": space,
    }
    return artifacts.stage_key("score", VERSION, params={"dtype": settings.dtype}, inputs=inputs)


def expected_key(
    content: Sequence[str],
    files: models.ModelFiles,
    settings: ScoreSettings,
    options: DataOptions,
) -> str:
    """The same for a plain run with one model; ``content`` are the sources' hashes."""
    space = signature_space([files], settings, content)
    return result_key(content, files, settings, options, space)


def _only(hashes: list[str]) -> Any:
    return hashes[0] if len(hashes) == 1 else hashes
