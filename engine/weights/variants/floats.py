"""Numbers that were stored in eight bits, with the scales that they are multiplied by."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logitbank.errors import WeightsError

if TYPE_CHECKING:
    import torch

ACTIVATIONS = frozenset(
    {"input_scale", "output_scale", "k_scale", "v_scale", "q_scale", "prob_scale", "kv_scale"}
)
"""Ends of the names of scales for activations and caches."""


def scaled(
    stored: "torch.Tensor", scales: "torch.Tensor", block: Sequence[int] | None
) -> "torch.Tensor":
    """The numbers (out, in), float32, that a tensor of float8 or int8 stands for.

    Parameters
    ----------
    stored
        (out, in).
    scales
        One number; or (out,) or (out, 1), one a row; or with `block` one for each block of so many
        rows and columns, of which the last may be smaller.

    Raises
    ------
    WeightsError
        The tensor is of another dtype, or its scales are not of its shape.
    """
    import torch

    known = (torch.float8_e4m3fn, torch.int8)
    sizes = tuple(stored.shape)
    if stored.ndim == 2 and stored.dtype in known and scales.is_floating_point():
        numbers, factors = stored.to(torch.float32), scales.to(torch.float32)
        if block is not None:
            blocks = tuple(-(-size // each) for size, each in zip(sizes, block, strict=True))
            if tuple(scales.shape) == blocks:
                rows = factors.repeat_interleave(block[0], 0)[: sizes[0]]
                return numbers * rows.repeat_interleave(block[1], 1)[:, : sizes[1]]
        elif scales.numel() == 1:
            return numbers * factors.reshape(())
        elif tuple(scales.shape) in ((sizes[0],), (sizes[0], 1)):
            return numbers * factors.reshape(-1, 1)
    raise WeightsError(
        f"a quantised matrix {list(sizes)} of {stored.dtype} and its scales"
        f" {list(scales.shape)} of {scales.dtype} do not belong together"
        f"{'' if block is None else f' in blocks of {list(block)}'}; fetch the checkpoint again"
    )
