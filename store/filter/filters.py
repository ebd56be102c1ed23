"""A filter of the highest logits, as a value and as a file: what debiasing trains and applies.

One linear map from the k highest logits of a query to k new ones, best first: it sees ranks and
never tokens. Source: Qureshi et al. 2024 (Refine-LM). The file is safetensors: data, no code.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

import numpy as np

from logitbank.errors import UsageError
from logitbank.store.files import objects
from logitbank.store.format.schema import CheckpointId, Json, json_digest

FORMAT = "logitbank-filter-1"
Mode = Literal["truncate", "keep_tail"]
"""Probability of tokens beyond the k highest: 0, or unchanged."""
MAX_K = 4096
MAX_WEIGHT = 1e9
"""With logits of tens, larger weights lose more than 1e-6 nats, the accuracy of scores."""
_MAX_BYTES = 2 * 8 * MAX_K**2


@dataclass(frozen=True, eq=False)
class Filter:
    """q = softmax(W ℓ + b) for the k highest logits ℓ of a query; q_i is of the token at rank i."""

    weight: np.ndarray
    """W, (k, k) float64."""
    bias: np.ndarray
    """b, (k,) float64."""
    mode: Mode = "keep_tail"
    """`truncate`: other tokens get 0. `keep_tail`: q distributes the mass of the k tokens, and the
    others keep theirs."""
    about: Mapping[str, Json] = field(default_factory=dict)
    """Description: `model`, `tokenizer`, training and data."""

    def __post_init__(self) -> None:
        k = self.bias.size
        if self.weight.shape != (k, k) or self.bias.shape != (k,) or not 1 <= k <= MAX_K:
            raise UsageError(
                f"A filter has weights (k, k) and a bias (k,), 1 ≤ k ≤ {MAX_K}. Got shapes"
                f" {self.weight.shape} and {self.bias.shape}."
            )
        if not (np.isfinite(self.weight).all() and np.isfinite(self.bias).all()):
            raise UsageError("A weight of the filter is not finite. Train it again.")
        largest = max(np.abs(self.weight).max(), np.abs(self.bias).max())
        if largest > MAX_WEIGHT:
            raise UsageError(
                f"A weight of the filter is {largest:.3g}, more than {MAX_WEIGHT:.0e}. Train it"
                " again."
            )
        if self.mode not in get_args(Mode):
            raise UsageError(
                f"Filter mode {self.mode[:80]!r} is unknown. Use truncate or keep_tail."
            )

    @property
    def k(self) -> int:
        return len(self.bias)

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
            A file exists already.
        """
        from safetensors.numpy import save

        metadata = {"format": FORMAT, "mode": self.mode, "about": json.dumps(dict(self.about))}
        objects.make_root(Path(path).parent)
        content = save({"weight": self.weight, "bias": self.bias}, metadata=metadata)
        if not objects.write_new(Path(path), content):
            raise UsageError(f"{path} exists already. Choose another name, or remove it.")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote.

        Raises
        ------
        UsageError
            The file does not exist, or is not such a filter.
        """
        path = Path(path)
        if not path.is_file():
            raise UsageError(
                f"There is no filter at {path}. Make one with `logitbank debias train`."
            )
        try:
            return cls(*_parse(path))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            reason = str(error).splitlines()[0][:200] if str(error) else repr(error)
            raise UsageError(f"{path} is not a filter of logitbank: {reason}") from error


def _parse(path: Path) -> tuple[np.ndarray, np.ndarray, Mode, dict[str, Json]]:
    """Weight, bias, mode and description in a file. `Filter` checks shapes and values."""
    from safetensors import SafetensorError, safe_open

    if (size := path.stat().st_size) > _MAX_BYTES:
        raise ValueError(f"it has {size:,} bytes, more than {_MAX_BYTES:,}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            weight, bias = (file.get_tensor(name) for name in ("weight", "bias"))
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    if metadata.get("format") != FORMAT:
        raise ValueError(f"its format is {ascii(metadata.get('format'))[:80]}, not {FORMAT!r}")
    if {weight.dtype.kind, bias.dtype.kind} != {"f"}:
        raise ValueError(f"its tensors are {weight.dtype} and {bias.dtype}, not floats")
    about = json.loads(metadata.get("about", ""))
    _check_about(about)
    mode = cast("Mode", metadata.get("mode", ""))
    return weight.astype(np.float64), bias.astype(np.float64), mode, about


def _check_about(about: Any) -> None:
    """Refuse other types than readers of a filter expect."""
    if not isinstance(about, dict):
        raise ValueError("its description is not a JSON object")
    json.dumps(about, ensure_ascii=False).encode()  # refuses half a pair of surrogates
    for name in ("model", "tokenizer"):
        if not isinstance(about.get(name), str | None):
            raise ValueError(f"its {name} is not text")
    seed = about.get("seed", 0)
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise ValueError(f"its seed is {ascii(seed)[:80]}, not a count below 2**63")
    if about.get("model") is not None:
        CheckpointId(about["model"])  # refuses an invalid name
