"""LoRA (Hu et al. 2021) through peft: only small matrices beside the linear layers are trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from formats.errors import SettingError
from stages.models import ModelFiles, load_model
from stages.train.settings import Settings

ADAPTER = "adapter"


def wrap(model: Any, settings: Settings) -> Any:
    """The model with adapters at all its linear layers except the output head; the rest is frozen.

    Raises:
        SettingError: the ``lora`` extra is not installed.
    """
    try:
        import peft
    except ImportError:
        raise SettingError("--lora needs peft", fix="pip install 'cluster-cli[lora]'") from None
    config = peft.LoraConfig(
        r=settings.lora,
        lora_alpha=settings.lora_alpha or 2 * (settings.lora or 0),
        lora_dropout=settings.lora_dropout,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(settings.seed)
    return peft.get_peft_model(model, config)


def save_merged(
    adapted: Any,
    state: dict[str, torch.Tensor] | None,
    files: ModelFiles,
    folder: Path,
    dtype: torch.dtype,
) -> None:
    """Writes the base model with the adapter added in, and the adapter alone beside it.

    The base is loaded afresh: the one in the engine may lie in pieces on several ranks.

    Args:
        adapted: what ``wrap`` gave, after training.
        state: its trained weights, where the module itself does not hold them whole.
    """
    import peft

    adapter = folder.with_name(ADAPTER)
    adapted.save_pretrained(adapter, state_dict=state)
    base = load_model(files, dtype=dtype)
    merged = peft.PeftModel.from_pretrained(base, adapter).merge_and_unload()
    merged.save_pretrained(folder)
