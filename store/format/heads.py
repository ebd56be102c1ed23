"""The LM head: weights that multiply a hidden state, and operations on the logits."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from logitbank.errors import BankFormatError, UsageError
from logitbank.store.format.block import finite_rows
from logitbank.store.format.limits import MAX_OUTPUTS, check_number
from logitbank.store.format.numbers import STORED_AS, as_float32
from logitbank.store.format.schema import Dtype, json_digest

HEAD_DIGEST = re.compile(r"[0-9a-f]{64}")
_OUTPUTS = 16_384
"""Outputs whose weights are converted to float32 at once: 32 MB for width 512. The product of 1,024
rows takes as long as with all outputs at once; with 4,096 outputs it took 1.6 times as long."""


class Operation(NamedTuple):
    """An operation on logits x: `scale` gives number · x, `soft_cap` number · tanh(x / number)."""

    name: Literal["scale", "soft_cap"]
    number: float

    def __call__(self, logits: np.ndarray) -> None:
        """Change logits in place."""
        number = np.float32(self.number)
        if self.name == "soft_cap":
            logits /= number
            np.tanh(logits, out=logits)
        logits *= number


def operations_from_json(value: Any) -> tuple[Operation, ...]:
    """The operations in a list such as `[["soft_cap", 30.0]]`.

    Raises BankFormatError for an unknown operation, perhaps of a later version, and ValueError for
    an invalid list or number.
    """
    after = []
    for name, *numbers in value:
        if name not in ("scale", "soft_cap"):
            raise BankFormatError(f"operation {name!r} is unknown. Upgrade logitbank to read rows.")
        if [type(number) in (int, float) for number in numbers] != [True] or not all(numbers):
            raise ValueError(f"{name} {numbers!r} is invalid")
        if not abs(numbers[0]) <= float(np.finfo(np.float32).max):  # false for NaN
            raise ValueError(f"{name} {numbers[0]!r} is invalid")
        after.append(Operation(name, float(numbers[0])))
    return tuple(after)


class HeadContent(NamedTuple):
    """SHA-256 (hex) of a head's numbers, little-endian and row after row."""

    weight: str
    bias: str | None
    """None without a bias."""


def head_digest(
    dtype: Dtype,
    shape: tuple[int, int],
    after: Sequence[Operation],
    content: HeadContent,
) -> str:
    """SHA-256 (hex) of the content of a head of `shape` (outputs, width)."""
    return json_digest([dtype, [*shape], [*after], *content])


@dataclass(frozen=True, eq=False)
class OutputHead:
    """Computes logits from a hidden state: operations on weight · state + bias.

    Raises
    ------
    UsageError
        A shape or dtype is invalid, or a number is not finite.
    """

    weight: np.ndarray
    """(outputs, width) float32, float16, or uint16: the bits of bfloat16."""
    dtype: Dtype
    """Dtype of the weights."""
    bias: np.ndarray | None = None
    """(outputs,) float32; None without a bias."""
    after: tuple[Operation, ...] = field(default=())
    """Operations on the logits, in this order."""

    def __post_init__(self) -> None:
        stored = STORED_AS.get(self.dtype)
        if stored is None or self.weight.ndim != 2 or self.weight.dtype != stored:
            raise UsageError(
                f"Weights of a {self.dtype} head have dtype {self.weight.dtype} and shape"
                f" {self.weight.shape}; use (outputs, width) of {stored}."
            )
        for size, what in ((self.outputs, "outputs"), (self.width, "width")):
            check_number(size, f"{what} of a head", 1, MAX_OUTPUTS)
        try:
            operations_from_json(self.after)
        except ValueError as error:
            raise UsageError(f"Invalid head: {error}. Check the config of the model.") from None
        bias = self.bias
        if bias is not None and (bias.shape != (self.outputs,) or bias.dtype != np.float32):
            raise UsageError(
                f"The bias has dtype {bias.dtype} and shape {bias.shape}; use float32 of"
                f" ({self.outputs},)."
            )
        if not finite_rows(self.weight).all() or not (bias is None or np.isfinite(bias).all()):
            raise UsageError("The head has weights that are not finite. Check the checkpoint.")

    @property
    def outputs(self) -> int:
        return len(self.weight)

    @property
    def width(self) -> int:
        """Entries of a state."""
        return int(self.weight.shape[1])

    @cached_property
    def digest(self) -> str:
        """See `head_digest`."""
        return head_digest(self.dtype, (self.outputs, self.width), self.after, self.content)

    @cached_property
    def content(self) -> HeadContent:
        """Digests of weights and bias."""
        little = self.weight.dtype.newbyteorder("<")
        weight = hashlib.sha256(np.ascontiguousarray(self.weight, little).data)
        if self.bias is None:
            return HeadContent(weight.hexdigest(), None)
        bias = hashlib.sha256(np.ascontiguousarray(self.bias, "<f4").data)
        return HeadContent(weight.hexdigest(), bias.hexdigest())

    def of(self, tokens: np.ndarray) -> "OutputHead":
        """The head of some outputs, in any order."""
        bias = None if self.bias is None else self.bias[tokens]
        return OutputHead(self.weight[tokens], self.dtype, bias, self.after)

    def logits(self, states: np.ndarray, tokens: np.ndarray | None = None) -> np.ndarray:
        """Logits (q, t) float32 of states (q, width) at some outputs (t,), or all.

        Products and sums are float32. Raises UsageError if the states have another width.
        """
        if states.ndim != 2 or states.shape[1] != self.width:
            raise UsageError(
                f"States of shape {states.shape} do not fit a head of width {self.width:,}."
            )
        if tokens is not None:
            return self.of(tokens).logits(states)
        weight, bias = self.weight, self.bias
        states = as_float32(states)
        out = np.empty((len(states), len(weight)), np.float32)
        for start in range(0, len(weight), _OUTPUTS):
            part = slice(start, start + _OUTPUTS)
            logits = np.matmul(states, as_float32(weight[part]).T, out=out[:, part])
            if bias is not None:
                logits += bias[part]
            for operation in self.after:
                operation(logits)
        return out
