"""The file of a filter: safetensors in which nothing is believed before it is checked."""

import json
from typing import Any, NamedTuple

import numpy as np

from logitbank.errors import UsageError
from logitbank.store.format.schema import CheckpointId, Json

FORMAT = "logitbank-filter-1"
MAX_HEADER = 2**24
"""Bytes of names, shapes and metadata. A filter of ours has about 1,000."""
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


class Content(NamedTuple):
    """What a file says, of the types that a filter has."""

    weight: np.ndarray
    bias: np.ndarray
    mode: str
    about: dict[str, Json]


def parse(data: bytes) -> Content:
    """The content of a file, sizes and values still to be checked.

    Raises
    ------
    ValueError
        It is no safetensors file of a filter; says why, in one line.
    """
    from safetensors import SafetensorError, deserialize

    size = int.from_bytes(data[:8], "little")
    if not 2 <= size <= min(len(data) - 8, MAX_HEADER):
        raise ValueError(f"it claims a header of {size:,} bytes; it has {len(data):,} in all")
    header = _object(data[8 : 8 + size], "its header")
    metadata = header.get("__metadata__", {})
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        declared = metadata.get("format") if isinstance(metadata, dict) else metadata
        raise ValueError(f"its format is {_short(declared)}, not {FORMAT!r}")
    about = _object(metadata.get("about", ""), "what it says about itself")
    _check_about(about)
    try:
        tensors = dict(deserialize(data))  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise ValueError(f"it is no safetensors: {_short(str(error))}") from error
    weight, bias = (_floats(tensors, name) for name in ("weight", "bias"))
    return Content(weight, bias, metadata.get("mode", ""), about)


def _floats(tensors: dict[str, Any], name: str) -> np.ndarray:
    if name not in tensors:
        raise ValueError(f"it has no tensor {name!r}")
    tensor = tensors[name]
    if (dtype := _FLOATS.get(tensor["dtype"])) is None:
        raise ValueError(f"{name} is of {tensor['dtype']}, not of {', '.join(_FLOATS)}")
    values = np.frombuffer(tensor["data"], dtype).reshape(tensor["shape"])
    return np.asarray(values, np.float64)


def _check_about(about: dict[str, Json]) -> None:
    """Refuse other types than readers of a filter rely on."""
    for name in ("model", "tokenizer"):
        if not isinstance(about.get(name), str | None):
            raise ValueError(f"its {name} is {_short(about[name])}, and must be text")
    seed = about.get("seed", 0)
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise ValueError(f"its seed is {_short(seed)}, and must be a count below 2**63")
    if (model := about.get("model")) is not None:
        try:
            CheckpointId(str(model))
        except UsageError as error:
            raise ValueError(str(error)) from error


def _object(text: str | bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # half a pair of surrogates is no text
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{what} is no JSON: {_short(str(error))}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")
    return value


def _short(value: object) -> str:
    """At most 80 characters of a stranger's value, on one line."""
    text = ascii(value[:200] if isinstance(value, str) else value)
    return text if len(text) <= 80 else f"{text[:80]}…"
