"""A filter of the highest logits, as a value and as a file: what debiasing trains and applies.

One linear map from the k highest logits of a query to k new ones, best first: it sees ranks and
never tokens. Source: Qureshi et al. 2024 (Refine-LM). The file is safetensors: data, no code.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast, get_args

import numpy as np

from logitbank.errors import UsageError
from logitbank.store.files import objects
from logitbank.store.format.schema import CheckpointId, Json, json_digest

FORMAT = "logitbank-filter-1"
Mode = Literal["truncate", "keep_tail"]
"""What becomes of tokens beyond the k highest: probability 0, or what they had."""
MAX_K = 4096
MAX_WEIGHT = 1e9
"""With logits of tens, a larger one loses 1e-6 nats to rounding, which is what scores are good to;
far larger ones leave no numbers at all."""
_MAX_BYTES = 2 * 8 * MAX_K**2
_MAX_HEADER = 2**24
"""Bytes of names, shapes and metadata. The header of a filter of ours has about 1,000."""
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


@dataclass(frozen=True, eq=False)
class Filter:
    """q = softmax(W ℓ + b) for the k highest logits ℓ of a query; q_i is of the token at rank i."""

    weight: np.ndarray
    """W, (k, k) float64."""
    bias: np.ndarray
    """b, (k,) float64."""
    mode: Mode = "keep_tail"
    """`truncate`: other tokens get 0. `keep_tail`: q shares out the mass that the k tokens had, and
    others keep theirs."""
    about: Mapping[str, Json] = field(default_factory=dict)
    """How it was made: `model`, `tokenizer`, training and data."""

    def __post_init__(self) -> None:
        k = self.bias.size
        if self.weight.shape != (k, k) or self.bias.shape != (k,) or not 1 <= k <= MAX_K:
            raise UsageError(
                f"a filter has weights (k, k) and a bias (k,), with k from 1 to {MAX_K}; these are "
                f"{self.weight.shape} and {self.bias.shape}"
            )
        if not (np.isfinite(self.weight).all() and np.isfinite(self.bias).all()):
            raise UsageError("a weight of the filter is not finite; train it again")
        largest = max(np.abs(self.weight).max(), np.abs(self.bias).max())
        if largest > MAX_WEIGHT:
            raise UsageError(
                f"a weight of the filter is {largest:.3g}, and may be {MAX_WEIGHT:.0e} at most;"
                " train it again"
            )
        if self.mode not in get_args(Mode):
            raise UsageError(
                f"filter mode {self.mode[:80]!r} is unknown; use truncate or keep_tail"
            )

    @property
    def k(self) -> int:
        return len(self.bias)

    @property
    def changes_nothing(self) -> bool:
        """Whether the filter is the identity, and keeps the tail."""
        same = np.array_equal(self.weight, np.eye(self.k)) and not self.bias.any()
        return same and self.mode == "keep_tail"

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of what it computes."""
        return json_digest([self.weight.tolist(), self.bias.tolist(), self.mode])

    def log_shares(self, logits: np.ndarray) -> np.ndarray:
        """ln q (k, n) of the k highest logits (k, n), best first: a column for each query.

        Rows of n are what NumPy is fast at: with (n, k) it took three times as long.
        """
        z = self._scores(logits)
        z -= np.log(np.exp(z).sum(axis=0))
        return z

    def shares(self, logits: np.ndarray) -> np.ndarray:
        """q (k, n) of the k highest logits (k, n)."""
        z = self._scores(logits)
        np.exp(z, out=z)
        z /= z.sum(axis=0)
        return z

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        z: np.ndarray = self.weight @ logits
        z += self.bias[:, None]
        z -= z.max(axis=0)
        return z

    @classmethod
    def identity(cls, k: int, mode: Mode = "keep_tail") -> Self:
        """Changes nothing where the tail is kept."""
        return cls(np.eye(k), np.zeros(k), mode, {"trained": False, "start": "identity"})

    @classmethod
    def ones(cls, k: int, mode: Mode = "truncate", *, seed: int = 0) -> Self:
        """The published start: all weights 1, and a bias drawn evenly from ±1/√k.

        W ℓ is one number for every output then, so q is softmax(b) whatever the logits are: the
        filter flattens before it is trained.
        """
        bound = 1 / np.sqrt(k)
        bias = np.random.default_rng(seed).uniform(-bound, bound, k)
        about: dict[str, Json] = {"trained": False, "start": "ones", "seed": seed}
        return cls(np.ones((k, k)), bias, mode, about)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: `weight`, `bias`, and the rest as metadata. Makes its folder.

        Raises
        ------
        UsageError
            A file is there already.
        """
        from safetensors.numpy import save

        metadata = {"format": FORMAT, "mode": self.mode, "about": json.dumps(dict(self.about))}
        objects.make_root(Path(path).parent)
        content = save({"weight": self.weight, "bias": self.bias}, metadata=metadata)
        if not objects.write_new(Path(path), content):
            raise UsageError(f"{path} is there already; choose another name or remove it")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote.

        Raises
        ------
        UsageError
            It is not there, or no such filter.
        """
        path = Path(path)
        if not path.is_file():
            raise UsageError(
                f"there is no filter at {path}; make one with `logitbank debias train`"
            )
        if (size := path.stat().st_size) > _MAX_BYTES:
            raise UsageError(
                f"{path} is no filter of logitbank: it has {size:,} bytes, more than {_MAX_BYTES:,}"
            )
        try:
            content = _parse(path.read_bytes())
            return cls(content.weight, content.bias, cast("Mode", content.mode), content.about)
        except (ValueError, RecursionError) as error:  # UsageError is a ValueError
            raise UsageError(f"{path} is no filter of logitbank: {error}") from error


class _Content(NamedTuple):
    """Content of a file, in the types of a filter."""

    weight: np.ndarray
    bias: np.ndarray
    mode: str
    about: dict[str, Json]


def _parse(data: bytes) -> _Content:
    """The content of a filter's file, before its sizes and values are checked.

    Raises ValueError with a reason of one line.
    """
    from safetensors import SafetensorError, deserialize

    size = int.from_bytes(data[:8], "little")
    if not 2 <= size <= min(len(data) - 8, _MAX_HEADER):
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
    return _Content(weight, bias, metadata.get("mode", ""), about)


def _floats(tensors: dict[str, Any], name: str) -> np.ndarray:
    if name not in tensors:
        raise ValueError(f"it has no tensor {name!r}")
    tensor = tensors[name]
    if (dtype := _FLOATS.get(tensor["dtype"])) is None:
        raise ValueError(f"{name} is of {tensor['dtype']}, not of {', '.join(_FLOATS)}")
    values = np.frombuffer(tensor["data"], dtype).reshape(tensor["shape"])
    return np.asarray(values, np.float64)


def _check_about(about: dict[str, Json]) -> None:
    """Refuse other types than readers of a filter expect."""
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
    """A stranger's value in one line of at most 80 characters."""
    text = ascii(value[:200] if isinstance(value, str) else value)
    return text if len(text) <= 80 else f"{text[:80]}…"
