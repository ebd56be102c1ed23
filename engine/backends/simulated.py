"""TF32 on a processor that has none: what is multiplied is rounded first, by arithmetic.

A simulation, for what a GPU will lose: not what any card was seen to give.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from logitbank.engine.backends.torch_precision import float32_products, multiply_as

_DROPPED = 13
"""Of float32's 23 bits behind the point TF32 has ten."""
_FACTORS = {
    "aten::mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::baddbmm": (1, 2),
    "aten::linear": (0, 1),
    "mkldnn::_linear_pointwise": (0, 1),
}
"""Operations that all matrix products come down to, and which of their arguments are multiplied."""
_COMPOSED = (
    *("aten::matmul", "aten::einsum"),
    *("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_attention_math"),
)
"""Operations that are made of those above."""


def round_to_tf32(values: torch.Tensor) -> torch.Tensor:
    """Float32 values to the nearest with ten bits behind the point, of two the even one.

    Examples
    --------
    >>> round_to_tf32(torch.tensor([1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11, -3.0])).tolist()
    [1.0009765625, 1.0, 1.001953125, -3.0]
    """
    bits = values.contiguous().view(torch.int32)
    half = (1 << (_DROPPED - 1)) - 1
    rounded = (bits + half + ((bits >> _DROPPED) & 1)) & -(1 << _DROPPED)
    return torch.where(values.isfinite(), rounded.view(torch.float32), values)


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Products inside are as on tensor cores that are asked for TF32; accumulated in float32.

    Linear layers and attention are, and where `in_float32` asks for float32 nothing is rounded.
    """
    multiply_as("tf32")
    try:
        # The one attention whose products are operations of their own.
        with sdpa_kernel(SDPBackend.MATH), _Rounding():  # type: ignore[no-untyped-call]
            yield
    finally:
        multiply_as("float32")


class _Rounding(TorchDispatchMode):  # type: ignore[no-untyped-call, misc, unused-ignore]
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = func._schema.name
        if name in _COMPOSED:
            with self:
                return func.decompose(*args, **(kwargs or {}))
        factors = _FACTORS.get(name, ())
        if factors and float32_products() == "tf32":
            args = [_rounded(a) if i in factors else a for i, a in enumerate(args)]
        return func(*args, **(kwargs or {}))


def _rounded(operand: torch.Tensor) -> torch.Tensor:
    return round_to_tf32(operand) if operand.dtype == torch.float32 else operand
