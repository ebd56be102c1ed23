"""Read a GGUF file with transformers, and write what it stands for as a checkpoint's folder.

A process: it ends when its standard input does, and says on standard output how large the numbers
are and what went wrong, as JSON. No code that comes with a file is run.
"""

import json
import os
import shutil
import struct
import sys
import threading
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

from logitbank.engine.gguf.said import ROPE_FACTORS, check_said, scaled_rope
from logitbank.engine.gguf.tokenizer import tokenizer_in
from logitbank.engine.tokenizers.tokenizer import copy_tokenizer
from logitbank.engine.weights.weights import GGUF_SAID
from logitbank.errors import DiskSpaceError, LogitbankError, MissingExtraError, WeightsError
from logitbank.store.files.disk import naming_full
from logitbank.wording import readable_bytes

_PLAIN = {0: ("F32", 32), 1: ("F16", 16), 30: ("BF16", 16)}
"""Of types that are no blocks: name and bits."""


def main() -> None:
    """Write one file's numbers; the arguments are those of `write`."""
    out, sys.stdout = sys.stdout, sys.stderr

    def say(**said: Any) -> None:
        print(json.dumps(said), file=out, flush=True)

    def end_with_parent() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    file, folder, digest, tokenizer = sys.argv[1:]
    try:
        write(Path(file), Path(folder), digest, Path(tokenizer) if tokenizer else None, say)
    except LogitbankError as error:
        say(error=type(error).__name__, message=str(error))


def write(file: Path, folder: Path, digest: str, tokenizer: Path | None, say: Any) -> None:
    """Fill a folder with the numbers of a file, and with the tokenizer beside it or in it.

    Messages of what is raised go on after the file's name.
    """
    metadata, header = _read(file)
    said = _described(header, digest)
    elements = sum(prod(t.shape) for t in header.tensors if t.name != ROPE_FACTORS)
    if 4 * elements > (free := shutil.disk_usage(folder).free):
        raise DiskSpaceError(
            f"stands for {readable_bytes(4 * elements)} of numbers in float32, and {folder.parent}"
            f" has {readable_bytes(free)} free; free some, or set XDG_CACHE_HOME to a larger disk"
        )
    alone = folder / "alone"  # without a config or an adapter, which would be read too
    alone.mkdir()
    (alone / "model.gguf").symlink_to(file)
    if tokenizer is None:
        tokenizer_in(alone, metadata).save_pretrained(folder)
    else:
        copy_tokenizer(tokenizer, folder)
    say(bytes=4 * elements)
    model = _model(alone, elements)
    if any(tensor.name == ROPE_FACTORS for tensor in header.tensors):
        model.config.rope_parameters = scaled_rope(_rope_factors(file), model.config)
    check_said(metadata, model.config)
    said["tokenizer"] = "beside" if tokenizer else "of the file"
    try:
        with naming_full(folder, 4 * elements):
            _halve(model)
            model.save_pretrained(folder)
            (folder / GGUF_SAID).write_text(json.dumps(said))
    except DiskSpaceError as error:
        raise DiskSpaceError(
            f"stands for {readable_bytes(4 * elements)} of numbers in float32, and the disk of"
            f" {folder.parent} is full; free some, or set XDG_CACHE_HOME to a larger disk"
        ) from error
    shutil.rmtree(alone)
    for path in folder.iterdir():  # before the folder gets its name
        with path.open("rb") as written:
            os.fsync(written.fileno())


def _read(file: Path) -> tuple[dict[str, Any], Any]:
    """What the file says of itself, and where its tensors lie."""
    try:
        import accelerate  # noqa: F401
        import gguf  # noqa: F401
        from transformers.integrations.gguf import GgufHeader, read_gguf_metadata
    except ImportError as error:
        raise MissingExtraError(
            f"is a GGUF file, and {error.name or 'transformers>=5.19'} is not installed, which"
            ' reads such; install it with `pip install "logitbank[gguf]"`'
        ) from error
    try:
        metadata, _ = read_gguf_metadata(str(file))
        header = GgufHeader.from_file(str(file))
    except struct.error as error:
        raise _unreadable(file, "its header goes on beyond its end") from error
    except Exception as error:  # whatever else strangers' bytes make of a parser
        raise _unreadable(file, f"{type(error).__name__}: {error}") from error
    end = header.data_start + max((t.offset + t.nbytes for t in header.tensors), default=0)
    if not header.tensors or end > file.stat().st_size:
        raise _unreadable(file, f"its tensors end at {end:,}")
    if metadata.get("split.count", 1) > 1:
        raise WeightsError(
            f"is one of {metadata['split.count']} parts; join them with llama.cpp's"
            " `llama-gguf-split --merge`, and give the whole"
        )
    architecture = metadata["general.architecture"]
    if metadata.get("general.type", "model") != "model" or architecture not in _architectures():
        raise WeightsError(
            f"holds a {metadata.get('general.type', 'model')} of architecture"
            f" {str(architecture)[:60]!r}, which transformers does not read"
            f" ({', '.join(_architectures())}); give the model's safetensors"
        )
    return metadata, header


def _architectures() -> list[str]:
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
    from transformers.integrations.gguf import GGUF_ARCHS

    other = {"general", "tokenizer", "tokenizer_config", "t5", "umt5"}
    spelt = {"qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss"}
    spelt |= {"minimax_m2": "minimax-m2"}
    legacy = (spelt.get(name, name) for name in GGUF_CONFIG_MAPPING if name not in other)
    return sorted({*legacy, *GGUF_ARCHS})


def _described(header: Any, digest: str) -> dict[str, Any]:
    """What provenance says of how the weights were kept; bits are those of a weight, on average."""
    from transformers.integrations.gguf.dequant import GGML_BLOCK, GGML_NAME

    types: Counter[str] = Counter()
    size = count = 0
    for tensor in header.tensors:
        kind = tensor.ggml_type
        types[_PLAIN[kind][0] if kind in _PLAIN else GGML_NAME[kind]] += 1
        if len(tensor.shape) > 1:
            size, count = size + tensor.nbytes, count + prod(tensor.shape)
    packed = sum(tensor.ggml_type in GGML_BLOCK for tensor in header.tensors)
    bits = round(8 * size / max(1, count), 2)
    said = {"method": "gguf", "bits": bits, "types": dict(sorted(types.items()))}
    return {**said, "tensors": packed, "sha256": digest}


def _model(alone: Path, elements: int) -> Any:
    """The model in float32, with all tensors of the file and no other."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig, __version__

    try:
        model, found = AutoModelForCausalLM.from_pretrained(
            alone,
            gguf_file="model.gguf",
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except Exception as error:  # a file may say anything
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        raise WeightsError(
            f"cannot be read by transformers {__version__} ({type(error).__name__}: {reason});"
            " give the model's safetensors"
        ) from error
    # What is missing would be drawn at random, and what it does not know passed over.
    missing = sorted(found["missing_keys"])
    held = sum(parameter.numel() for parameter in model.parameters())
    if missing or held != elements:
        what = f"lacks {missing[0]}" if missing else f"holds {elements:,} numbers, not {held:,}"
        raise WeightsError(
            f"{what} of the {type(model).__name__} that transformers {__version__} makes of it;"
            " give the model's safetensors"
        )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # of the file: what is written is not quantised
    return model


def _rope_factors(file: Path) -> list[float]:
    from gguf import GGUFReader

    tensors = (each for each in GGUFReader(file).tensors if each.name == ROPE_FACTORS)
    return [float(value) for value in next(tensors).data.reshape(-1)]


def _halve(model: Any) -> None:
    """Keep what 16 bits hold exactly in 16 bits, as such files hold it."""
    import torch

    for parameter in model.parameters():
        for dtype in (torch.bfloat16, torch.float16):
            half: torch.Tensor = parameter.data.to(dtype)
            if torch.equal(half.float(), parameter.data):
                parameter.data = half
                break


def _unreadable(file: Path, reason: str) -> WeightsError:
    return WeightsError(
        f"is truncated or damaged ({file.stat().st_size:,} bytes; {reason[:200]}); fetch it again"
    )


if __name__ == "__main__":
    main()
