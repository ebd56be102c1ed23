"""Weights in eight-bit floating point with a scale for a tensor, a row or a block.

    W[o, i] = w[o, i] · s[o // block, i // block]

as DeepSeek-V3's technical report (2024, section 3.3) has it, and transformers' and vLLM's `fp8`.
The scale is called `weight_scale`, or `weight_scale_inv`, by which one multiplies all the same.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logitbank.engine.weights.variants.floats import ACTIVATIONS, scaled
from logitbank.engine.weights.variants.scheme import Scheme, refused, require

if TYPE_CHECKING:
    import torch

METHOD = "fp8"


def scheme(fields: Mapping[str, Any], path: Path) -> Scheme:
    """How these fields of a config have weights restored."""
    require(
        fields,
        {"fmt": (None, "e4m3", "float8_e4m3fn"), "scale_fmt": (None, "float", "ue8m0")},
        path,
    )
    block = fields.get("weight_block_size")
    if block is not None and not (
        isinstance(block, list)
        and len(block) == 2
        and all(type(size) is int and 0 < size <= 1 << 16 for size in block)
    ):
        raise refused(path, METHOD, f"and weight_block_size {str(block)[:60]!r} is no pair")
    scale = "weight_scale" if block is None else "weight_scale_inv"

    def restored(parts: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        return scaled(parts["weight"], parts[scale], block)

    return Scheme(
        METHOD,
        8,
        scale,
        frozenset({"weight"}),
        lambda shapes: shapes["weight"],
        restored,
        unused=ACTIVATIONS,
    )
