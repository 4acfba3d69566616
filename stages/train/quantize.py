"""QLoRA (Dettmers et al. 2023): the frozen weights in 4 bits, through transformers and bitsandbytes."""

from __future__ import annotations

import importlib.util
from typing import Any

from formats.errors import ModelError, SettingError
from stages.models import ModelFiles


def check() -> None:
    """Looks for what it takes.

    Raises:
        SettingError: bitsandbytes or peft is not installed, or there is no CUDA GPU to use.
    """
    from stages.launch import use_cpu

    for package in ("bitsandbytes", "peft"):
        if importlib.util.find_spec(package) is None:
            raise SettingError(
                f"--quantize 4bit needs {package}", fix="pip install 'cluster-cli[qlora]'"
            )
    if use_cpu():
        raise SettingError(
            "--quantize 4bit needs a CUDA GPU", fix="leave --quantize out, or train on a GPU"
        )


def load(files: ModelFiles, *, dtype: Any, device: str) -> Any:
    """The model with its linear layers in 4-bit NormalFloat, doubly quantized, on the device.

    Args:
        dtype: a ``torch.dtype``, what is computed with.

    Raises:
        ModelError: it is a GGUF file, or transformers cannot load it so.
    """
    import peft
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    if files.gguf:
        raise ModelError(
            f"{files.name} is quantized already", fix="give the model in Hugging Face format"
        )
    four_bits = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    try:
        model = AutoModelForCausalLM.from_pretrained(
            files.folder,
            dtype=dtype,
            use_safetensors=True,
            quantization_config=four_bits,
            device_map={"": device},
        )
    except Exception as error:
        raise ModelError(
            f"{files.name} cannot be quantized: {' '.join(str(error).split())[:300]}"
        ) from error
    # The caller switches gradient checkpointing on, as for any other model.
    return peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
