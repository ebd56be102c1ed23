"""Integers of a few bits, out of the int32 that they are packed into, and back into numbers."""

from typing import TYPE_CHECKING

from logitbank.errors import WeightsError

if TYPE_CHECKING:
    import torch


def unpacked(packed: "torch.Tensor", bits: int) -> "torch.Tensor":
    """Unsigned integers (rows, columns · 32 / bits) of int32 (rows, columns), lowest bits first.

    Raises
    ------
    WeightsError
        The tensor is no matrix of int32.
    """
    import torch

    if packed.dtype != torch.int32 or packed.ndim != 2:
        raise WeightsError(
            f"packed integers are of {packed.dtype} and shape {list(packed.shape)}, and a matrix of"
            " torch.int32 is needed; fetch the checkpoint again"
        )
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    integers: torch.Tensor = (packed.unsqueeze(-1) >> shifts) & (2**bits - 1)
    return integers.flatten(1)


def by_group(
    integers: "torch.Tensor",
    scales: "torch.Tensor",
    zeros: "torch.Tensor | None",
    groups: "torch.Tensor | None",
    size: int | None,
) -> "torch.Tensor":
    """(integers − zeros) · scales, float32, where columns share a scale and a zero by group.

    Parameters
    ----------
    integers
        (out, in).
    scales, zeros
        (out, g). No `zeros` are 0.
    groups
        (in,), the group of each column; otherwise neighbours are a group.
    size
        How many neighbours; None for all columns.

    Raises
    ------
    WeightsError
        Shapes do not belong together, a group does not exist, or scales are no numbers.
    """
    import torch

    outputs, inputs = integers.shape
    count = scales.shape[-1] if scales.ndim == 2 else 0
    fits = scales.ndim == 2 and len(scales) == outputs and scales.is_floating_point()
    if groups is None or not groups.numel():
        size = size or inputs
        fits = fits and count == -(-inputs // size)
        groups = torch.arange(inputs) // size
    elif fits := fits and groups.shape == (inputs,) and not groups.is_floating_point():
        fits = int(groups.min()) >= 0 and int(groups.max()) < count
    if not fits or (zeros is not None and zeros.shape != scales.shape):
        other = "" if zeros is None else f", zeros {list(zeros.shape)}"
        raise WeightsError(
            f"integers {[outputs, inputs]}, scales {list(scales.shape)}{other} of a quantised"
            " matrix do not belong together; fetch the checkpoint again"
        )
    groups = groups.long()
    numbers = integers.to(torch.float32)
    if zeros is not None:
        numbers -= zeros.to(torch.float32)[:, groups]
    return numbers * scales.to(torch.float32)[:, groups]
