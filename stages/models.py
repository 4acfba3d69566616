"""Finding, fingerprinting and loading models and tokenizers: the one home of all that.

Nothing from a model is executed: weights are safetensors or GGUF, never pickles, and code that comes with
a model runs only under ``trust_remote_code``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.errors import ModelError
from formats.fingerprints import files_sha256

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
)


@dataclass(frozen=True)
class ModelFiles:
    """A model found on disk.

    Attributes:
        name: as the user gave it.
        folder: where its files lie.
        gguf: the GGUF file's name inside ``folder``, when it is one.
        weights_sha256: hash over configuration and weights.
        tokenizer_sha256: hash over the tokenizer's files (the GGUF file itself, when it is one).
    """

    name: str
    folder: Path
    gguf: str | None
    weights_sha256: str
    tokenizer_sha256: str


def find_model(name: str | os.PathLike[str], *, weights: bool = True) -> ModelFiles:
    """Finds a model folder, a GGUF file, or a Hugging Face name, and hashes its content.

    A hub name is looked up in the local cache first and downloaded only when it is not there.

    Args:
        name: folder, ``.gguf`` file, or hub name.
        weights: also hash the weights; False for callers that need the tokenizer alone.

    Raises:
        ModelError: it cannot be found, or holds neither safetensors nor GGUF weights.
    """
    path = Path(name)
    if path.is_file() and path.suffix == ".gguf":
        return _gguf(str(name), path.parent, path.name)
    if path.is_file():
        raise ModelError(
            f"{name} is a file and no model",
            fix="give a model's folder, a .gguf file, or a hub name",
        )
    folder = path if path.is_dir() else _from_hub(str(name))
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    ggufs = [entry for entry in names if entry.endswith(".gguf")]
    if "config.json" not in names and len(ggufs) == 1:
        return _gguf(str(name), folder, ggufs[0])
    if "config.json" not in names and "adapter_config.json" not in names:
        raise ModelError(
            f"{name} holds no model: no config.json and no single .gguf file",
            fix="give a folder written by save_pretrained, a .gguf file, or a hub name",
        )
    tensors = [entry for entry in names if entry.endswith(".safetensors")]
    if not tensors:
        raise ModelError(
            f"{name} holds no .safetensors weights",
            fix="save it again with save_pretrained; pickled weights are never loaded",
        )
    settings = [n for n in names if n in ("config.json", "adapter_config.json")]
    tokenizer = [entry for entry in names if entry in _TOKENIZER_FILES]
    return ModelFiles(
        str(name),
        folder,
        None,
        files_sha256(folder, [*tensors, *settings]) if weights else "",
        files_sha256(folder, tokenizer),
    )


def _gguf(name: str, folder: Path, file: str) -> ModelFiles:
    content = files_sha256(folder, [file])
    return ModelFiles(name, folder, file, content, content)


def _from_hub(name: str) -> Path:
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or not name:
        raise ModelError(f"no model folder at {name!r}", fix="check the path")
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns, local_files_only=True))
    except Exception:  # not cached: the hub's own error below is the one worth showing
        pass
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{name!r} is no folder here and could not be had from the Hugging Face hub ({reason})",
            fix="check the name, or give a folder",
        ) from error


def load_tokenizer(files: ModelFiles, *, trust_remote_code: bool = False) -> Any:
    """The model's tokenizer.

    Raises:
        ModelError: transformers cannot load it.
    """
    from transformers import AutoTokenizer

    options: dict[str, Any] = {"gguf_file": files.gguf} if files.gguf else {}
    try:
        return AutoTokenizer.from_pretrained(
            files.folder, trust_remote_code=trust_remote_code, **options
        )
    except Exception as error:
        raise ModelError(
            f"{files.name}: the tokenizer cannot be loaded ({_first(error)})"
        ) from error


def load_model(files: ModelFiles, *, dtype: Any, trust_remote_code: bool = False) -> Any:
    """The model, in evaluation mode on the CPU, as ``AutoModelForCausalLM`` gives it.

    A folder with a PEFT adapter gives the adapted model (needs the ``lora`` extra).

    Args:
        dtype: a ``torch.dtype``.

    Raises:
        ModelError: transformers cannot load it, or it is no causal language model.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # the stages report progress themselves
    options: dict[str, Any] = {"gguf_file": files.gguf} if files.gguf else {"use_safetensors": True}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            files.folder, dtype=dtype, trust_remote_code=trust_remote_code, **options
        )
    except Exception as error:
        raise ModelError(f"{files.name}: the model cannot be loaded ({_first(error)})") from error
    if files.gguf:
        _forget_gguf(model)
    return model.eval()


def hidden_size(files: ModelFiles) -> int:
    """E, the width of the model's hidden states, from its configuration alone."""
    from transformers import AutoConfig

    options: dict[str, Any] = {"gguf_file": files.gguf} if files.gguf else {}
    try:
        config = AutoConfig.from_pretrained(files.folder, **options)
        return int(config.get_text_config().hidden_size)
    except Exception as error:
        raise ModelError(
            f"{files.name}: no hidden size in its configuration ({_first(error)})"
        ) from error


def _forget_gguf(model: Any) -> None:
    """GGUF weights arrive as plain tensors, yet the model says quantized and refuses to be saved."""
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def _first(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def compute_device() -> str:
    """The device to compute on: this process's own GPU when there is one, else the CPU."""
    import torch

    if os.environ.get("DS_ACCELERATOR") == "cpu" or not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"


def resolve_dtype(name: str, device: str) -> Any:
    """``auto`` is bfloat16 where the GPU has it and float32 elsewhere; otherwise as named.

    Raises:
        ModelError: the name is none of auto, float32, bfloat16, float16.
    """
    import torch

    names = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name == "auto":
        has_bf16 = device.startswith("cuda") and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if has_bf16 else torch.float32
    if name not in names:
        raise ModelError(f"dtype {name!r} is unknown", fix="use auto, float32, bfloat16 or float16")
    return names[name]
