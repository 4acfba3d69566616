"""What an evaluation will make, and its key, worked out before anything is computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.data import DataOptions, find_sources
from formats.errors import SettingError
from stages.evaluate.settings import EvaluateSettings, Job, evaluation_key, key_inputs
from stages.evaluate.subject import Subject


@dataclass(frozen=True)
class Target:
    """What an evaluation will make, worked out before anything is computed.

    Attributes:
        subject: the model.
        settings: everything resolved.
        options: how the data are read, resolved.
        inputs: content hashes of all that is read.
        key: of the result.
    """

    subject: Subject
    settings: EvaluateSettings
    options: DataOptions
    inputs: dict[str, Any]
    key: str

    @classmethod
    def of(
        cls,
        model: Path | str,
        data: Sequence[str],
        settings: EvaluateSettings,
        options: DataOptions,
        allow_overlap: bool,
    ) -> Target:
        """Checks the settings and hashes data and model."""
        settings.check()
        if not data and not settings.tasks:
            raise SettingError("there is nothing to evaluate on", fix="give --data or --tasks")
        subject = Subject.find(model)
        options = subject.options(options)
        said = {name: value for name, value in subject.rendering().items() if value is not None}
        given = {name: getattr(settings, name) for name in ("max_length", "chat_template")}
        settings = dataclasses.replace(
            settings, **{k: v for k, v in said.items() if given[k] is None}
        )
        content = [sha256 for _, sha256 in find_sources(data, options)] if data else []
        files, header = subject.files, subject.header
        seen = header.inputs[0]["sha256"] if header and data and not allow_overlap else None
        inputs = key_inputs(files.weights_sha256, files.tokenizer_sha256, content, options, seen)
        if settings.tasks:
            from stages.evaluate.harness import contents

            inputs |= contents(settings.task_folder)
        return cls(subject, settings, options, inputs, evaluation_key(settings, inputs))

    def job(self, batch_tokens: int | None, trust_remote_code: bool, quiet: bool) -> Job:
        """The job for this machine, its data still to be named."""
        import torch

        from stages.models import compute_device

        usual = 8_192 if compute_device().startswith("cuda") else 2_048
        files = self.subject.files
        place = str(files.folder.absolute() / (files.gguf or ""))
        return Job(
            key=self.key,
            inputs=self.inputs,
            model=place.rstrip("/") if files.folder.is_dir() else files.name,
            dataset=None,
            settings=self.settings,
            batch_tokens=batch_tokens or usual,
            threads=torch.get_num_threads(),
            trust_remote_code=trust_remote_code,
            quiet=quiet,
        )
