"""Read the weights of one checkpoint folder, one tensor at a time.

It knows file formats and no model. Reading a file runs no code in it.
"""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, NamedTuple

from logitbank.errors import WeightsError

if TYPE_CHECKING:
    import torch

_SHARD = re.compile(r"(?P<stem>.+)-(?P<part>[0-9]{5})-of-(?P<parts>[0-9]{5})(?P<suffix>\.\w+)")


@dataclass(frozen=True, slots=True)
class _Format:
    single: str
    index: str
    pattern: str


SAFE = _Format("model.safetensors", "model.safetensors.index.json", r"[^/]+\.safetensors")
LEGACY = _Format("pytorch_model.bin", "pytorch_model.bin.index.json", r"pytorch_model[^/]*\.bin")

GGUF = ".gguf"
GGUF_UNSUPPORTED = (
    "is a GGUF file, which is not supported. Save it with transformers as an ordinary folder, and"
    " extract that folder: see docs/run-models.md."
)
DISTRIBUTED_UNSUPPORTED = (
    "is a distributed checkpoint (DCP) of shards named *.distcp, which is not supported. Merge them"
    " with `accelerate merge-weights` or torch's dcp_to_torch, and put config.json and the"
    " tokenizer beside the result"
)
ADAPTER = "adapter_config.json"
ADAPTER_UNSUPPORTED = (
    "is an adapter, which is not supported. Merge it into its base model with PEFT, save the"
    " result, and extract that folder: see docs/run-models.md."
)


LFS_POINTER = b"version https://git-lfs"
"""The first bytes of a text that Git LFS puts in the place of a file."""
_SETTINGS = re.compile(
    r"(generation_)?config\.json|(tokenizer|vocab|merges).*|(special_tokens_map|added_tokens)\.json"
    r"|.*\.model"
)
"""Names of configs and tokenizer files."""
_PARTS_OF_QUANTISED = re.compile(
    r"(^|[._])(qweight|qzeros|weight_packed|weight_scale(_inv)?|weight_zero_point|SCB|absmax"
    r"|quant_map|quant_state\.\w+)$"
)
"""Tensors that quantisation tools store beside or instead of weights."""
_FLOATS = frozenset({"F16", "BF16", "F32", "F64", "float16", "bfloat16", "float32", "float64"})


class TensorHeader(NamedTuple):
    """Shape and dtype of a tensor, from the header of its file."""

    shape: tuple[int, ...]
    dtype: str
    """As safetensors names it (`F16`), or as torch does (`float16`)."""


def check_not_pointer(path: Path) -> None:
    """Refuse a Git LFS pointer, or do nothing if the file does not exist.

    Raises
    ------
    WeightsError
        The file is the small text that Git LFS puts in the place of a large file.
    """
    with suppress(FileNotFoundError), path.open("rb") as file:
        start = file.read(200)
        if start.startswith(LFS_POINTER) and b"\noid " in start:
            raise WeightsError(
                f"{path} is a Git LFS pointer, not the file itself. Run git lfs pull in the"
                " repository that it belongs to"
            )


def check_pointers(*folders: Path) -> None:
    """Refuse Git LFS pointers among the weights, configs and tokenizer files of some folders.

    Raises
    ------
    WeightsError
        As `check_not_pointer`.
    """
    for folder in dict.fromkeys(folders):
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        read = (*weight_names(names), *filter(_SETTINGS.fullmatch, names))
        for name in dict.fromkeys(read):
            check_not_pointer(folder / name)


def check_tensors(folder: Path, headers: Mapping[str, TensorHeader]) -> None:
    """Refuse tensors without values, and quantised weights that the config does not name.

    Raises
    ------
    WeightsError
        A weight is empty (ZeRO-3 saves such files), has whole numbers or 8 bits, or is a part of a
        quantised one.
    """
    if empty := sorted(name for name, header in headers.items() if 0 in header.shape):
        raise WeightsError(
            f"{folder}: {len(empty)} of {len(headers)} tensors are empty, such as {empty[0]}:"
            " DeepSpeed ZeRO-3 saved them without gathering them. Save the checkpoint again with"
            " stage3_gather_16bit_weights_on_model_save, or convert it with zero_to_fp32.py"
        )
    quantised = sorted(
        name
        for name, header in headers.items()
        if _PARTS_OF_QUANTISED.search(name)
        or (name.endswith("weight") and header.dtype not in _FLOATS)
    )
    if quantised:
        name = quantised[0]
        raise WeightsError(
            f"{folder} contains quantised weights, which are not supported: {len(quantised)} of"
            f" {len(headers)} tensors, such as {name} ({headers[name].dtype}), and its config.json"
            " names no quantisation. Use the model before it was quantised, or save it dequantised"
        )


def check_plain(folder: Path) -> None:
    """Refuse adapters and quantised weights.

    Raises
    ------
    WeightsError
        The folder contains an adapter or quantised weights.
    """
    if (folder / ADAPTER).is_file():
        raise WeightsError(f"{folder} {ADAPTER_UNSUPPORTED}")
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return  # raised when it is read
    fields = config if isinstance(config, dict) else {}
    quantised = fields.get("quantization_config") or fields.get("compression_config")
    if quantised or (folder / "hf_quant_config.json").is_file():
        method = quantised.get("quant_method", "") if isinstance(quantised, dict) else ""
        raise WeightsError(
            f"{folder} contains quantised weights ({str(method)[:40] or 'unknown method'}), which"
            " are not supported; use the model before it was quantised, or save it dequantised"
            " with the tool that made it"
        )


def weight_names(names: Sequence[str]) -> list[str]:
    """The names of weight files among the file names of a checkpoint.

    Safetensors if there are any, otherwise legacy weights; the single file if there are also shards
    of the same weights. Names in sub-folders are ignored, and so are Mistral's own `consolidated`
    files beside others.
    """
    for kind in (SAFE, LEGACY):
        if kind.single in names:
            return [kind.single]
        if matching := sorted(name for name in names if re.fullmatch(kind.pattern, name)):
            return [name for name in matching if not name.startswith("consolidated")] or matching
    return []


def choose_weights(names: Sequence[str], where: str) -> list[str]:
    """As `weight_names`, of a folder that must contain weights.

    Raises
    ------
    WeightsError
        None of the names is a weight file.
    """
    if chosen := weight_names(names):
        return chosen
    if packed := [name for name in names if name.endswith(GGUF)]:
        raise WeightsError(f"{packed[0]} in {where} {GGUF_UNSUPPORTED}")
    raise WeightsError(
        f"{where} contains no weights: looked for {SAFE.single}, *.safetensors and {LEGACY.single};"
        " give a whole checkpoint"
    )


def is_distributed(folder: Path) -> bool:
    """Whether a folder, or a folder in it, has shards of PyTorch's distributed checkpoints."""
    return any(any(folder.glob(pattern)) for pattern in ("*.distcp", "*/*.distcp"))


def weight_files(folder: Path) -> list[Path]:
    """The weight files of a checkpoint, in name order.

    Safetensors win over legacy weights. An index lists the required shards.

    Raises
    ------
    WeightsError
        The folder contains no weights, not all of its shards, or an index that is unreadable or
        points out of the folder.
    """
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not weight_names(names) and is_distributed(folder):
        raise WeightsError(f"{folder} {DISTRIBUTED_UNSUPPORTED}.")
    chosen = choose_weights(names, str(folder))
    kind = SAFE if chosen[0].endswith(".safetensors") else LEGACY
    if kind.single not in chosen and kind.index in names:
        chosen = sorted(set(_read_index(folder / kind.index).values()))
    expected = set(chosen)
    for name in chosen:
        if match := _SHARD.fullmatch(name):
            stem, parts, suffix = match["stem"], match["parts"], match["suffix"]
            count = min(int(parts), 9999)
            expected |= {f"{stem}-{n:05d}-of-{parts}{suffix}" for n in range(1, count + 1)}
    if missing := sorted(expected.difference(names)):
        raise WeightsError(
            f"{folder} has no weight file {missing[0]} ({len(missing)} of {len(expected)} are "
            "missing); fetch the checkpoint again"
        )
    return [folder / name for name in chosen]


def weight_file_bytes(folder: Path) -> int:
    """Bytes of a checkpoint's weight files; 0 if it has none."""
    with suppress(WeightsError, OSError):
        return sum(file.stat().st_size for file in weight_files(folder))
    return 0


def stream_weights(folder: Path) -> "Iterator[tuple[str, torch.Tensor]]":
    """Yield each tensor's name and values, one at a time, on the CPU, in the file's dtype.

    Memory stays at about one tensor: files are mapped, not read. No tensor is larger than its
    file. Legacy weights go through torch's weights-only reader, which runs no code.

    Raises
    ------
    WeightsError
        As `weight_files`; or a file is truncated, damaged, needs more than tensors, contains a
        tensor that another file also contains, or lacks one that the index lists.
    """
    files = weight_files(folder)
    seen: dict[str, Path] = {}
    for path in files:
        for name, tensor in _read_file(path):
            if name in seen:
                raise WeightsError(
                    f"tensor {name!r} is in {seen[name]} and in {path}; keep one set of weights"
                )
            seen[name] = path
            yield name, tensor
    index = folder / (SAFE if files[0].suffix == ".safetensors" else LEGACY).index
    listed = set(_read_index(index) if len(files) > 1 and index.is_file() else {})
    if missing := sorted(listed - set(seen)):
        raise WeightsError(
            f"{index} lists tensor {missing[0]!r}, which no shard contains ({len(missing)} such); "
            "fetch the checkpoint again"
        )


def check_weights(folder: Path) -> None:
    """Check that all weight files are present and begin as such files do; reads no tensor.

    Raises
    ------
    WeightsError
        As `weight_files`; or a safetensors file is truncated or damaged.
    """
    for path in weight_files(folder):
        if path.suffix == ".safetensors":
            with _opened(path, framework="numpy"):
                pass
        else:
            check_not_pointer(path)


def check_headers(folder: Path) -> None:
    """`check_tensors` of a folder; legacy files that have to be read for that are not checked."""
    if all(
        path.suffix == ".safetensors" or zipfile.is_zipfile(path) for path in weight_files(folder)
    ):
        check_tensors(folder, tensor_headers(folder))


def tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors in a folder's weights, as `tensor_headers`."""
    return {name: header.shape for name, header in tensor_headers(folder).items()}


def tensor_headers(folder: Path) -> dict[str, TensorHeader]:
    """Shapes and dtypes of a folder's tensors; of safetensors only the headers are read.

    Raises
    ------
    WeightsError
        As `stream_weights`.
    """
    headers: dict[str, TensorHeader] = {}
    for path in weight_files(folder):
        if path.suffix != ".safetensors":
            headers |= {
                name: TensorHeader(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
                for name, tensor in _read_legacy(path)
            }
            continue
        with _opened(path, framework="numpy") as file:  # headers alone: torch is not imported
            for name in file.keys():  # noqa: SIM118
                part = file.get_slice(name)
                headers[name] = TensorHeader(tuple(part.get_shape()), part.get_dtype())
    return headers


def _read_file(path: Path) -> "Iterator[tuple[str, torch.Tensor]]":
    if path.suffix != ".safetensors":
        yield from _read_legacy(path)
        return
    with _opened(path, framework="pt") as file:
        for name in sorted(file.keys()):
            yield name, file.get_tensor(name)


def _read_index(path: Path) -> dict[str, str]:
    """Tensor name to file name."""
    try:
        mapping = json.loads(path.read_bytes())["weight_map"]
        names = {str(tensor): str(file) for tensor, file in mapping.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WeightsError(
            f"{path} is not a weight index ({type(error).__name__}); fetch the checkpoint again"
        ) from error
    if not names:
        raise WeightsError(f"{path} lists no tensor; fetch the checkpoint again")
    for file in names.values():
        if not re.fullmatch(f"{SAFE.pattern}|{LEGACY.pattern}", file):
            raise WeightsError(
                f"{path} names the file {file!r}, which is not a weight file in its own folder; "
                "do not use this checkpoint"
            )
    return names


@contextmanager
def _opened(path: Path, *, framework: str) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    check_not_pointer(path)
    try:
        with safe_open(path, framework=framework, device="cpu") as file:
            yield file
    except (SafetensorError, OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _read_legacy(path: Path) -> "Iterator[tuple[str, torch.Tensor]]":
    import torch

    check_not_pointer(path)
    try:
        # Files from before torch 1.6 are no zip archives and cannot be mapped.
        content = torch.load(
            path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
        )
    except UnpicklingError as error:
        raise WeightsError(
            f"{path} needs more than tensors to load, so it was not loaded and nothing in it ran; "
            "use a checkpoint in safetensors"
        ) from error
    except Exception as error:  # a changed file makes the reader raise anything
        raise _unreadable(path, error) from error
    if not isinstance(content, dict):
        raise WeightsError(
            f"{path} contains a {type(content).__name__}, not tensors by name; "
            "convert it to safetensors"
        )
    size = path.stat().st_size
    for name in list(content):
        tensor = content.pop(name)
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise WeightsError(
                f"{path} contains {name!r} of type {type(tensor).__name__}, not a tensor; "
                "convert it to safetensors"
            )
        if tensor.is_sparse or tensor.numel() * tensor.element_size() > size:
            raise WeightsError(
                f"{path} claims a tensor {name!r} of shape {list(tensor.shape)}, "
                "larger than the file; do not use it"
            )
        yield name, tensor


def _unreadable(path: Path, error: Exception) -> WeightsError:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return WeightsError(
        f"{path} is truncated or damaged ({path.stat().st_size} bytes: {reason}); "
        "fetch or save the checkpoint again"
    )
