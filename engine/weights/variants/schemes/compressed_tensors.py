"""compressed-tensors, as LLM Compressor saves it: packed integers, int8 and float8.

    W[o, i] = (q[o, i] − zeros[o, g]) · scales[o, g], g = g_idx[i], or neighbours in groups

`pack-quantized` holds q + 2^(bits − 1) in the lowest bits first of int32 (out, in / n), and zeros
likewise along the outputs; `int-quantized`, `naive-quantized` and `float-quantized` hold q itself.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logitbank.engine.weights.variants.floats import ACTIVATIONS, scaled
from logitbank.engine.weights.variants.integers import by_group, unpacked
from logitbank.engine.weights.variants.scheme import Scheme, group_size, refused
from logitbank.errors import WeightsError

if TYPE_CHECKING:
    import torch

METHOD = "compressed-tensors"
_PACKED = "pack-quantized"
_WHOLE = {
    "int-quantized": ("int",),
    "naive-quantized": ("int", "float"),
    "float-quantized": ("float",),
}
"""Formats with one stored number each, and of which types."""


def scheme(fields: Mapping[str, Any], path: Path) -> Scheme:
    """How these fields of a config have weights restored."""
    form, weights = _one_group(fields, path)
    bits, kind, strategy = (weights.get(name) for name in ("num_bits", "type", "strategy"))
    known = (
        bits in (2, 4, 8) and kind == "int"
        if form == _PACKED
        else bits == 8 and kind in _WHOLE[form]
    )
    if type(bits) is not int or not known:
        raise refused(
            path, METHOD, f"and {form} of {bits!r} bits of type {kind!r} is not supported"
        )
    if strategy not in ("tensor", "channel", "group", "block"):
        raise refused(path, METHOD, f"and strategy {strategy!r} is not supported")
    block = weights.get("block_structure") if strategy == "block" else None
    if strategy == "block" and not (
        form != _PACKED
        and isinstance(block, list)
        and len(block) == 2
        and all(type(size) is int and 0 < size <= 1 << 16 for size in block)
    ):
        raise refused(path, METHOD, f"and block_structure {str(block)[:60]!r} is not supported")

    size = group_size({**weights, "quant_method": METHOD}, path) if strategy == "group" else None

    def restored(parts: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        if form == _PACKED:
            values, zeros = _unpacked(parts, bits)
        else:
            values, zeros = parts["weight"], parts.get("weight_zero_point")
            if values.element_size() != 1:
                raise WeightsError(f"it is of {values.dtype}, and not of eight bits")
        if block is not None:
            return scaled(values, parts["weight_scale"], block)
        if values.ndim != 2:
            raise WeightsError(f"it has shape {list(values.shape)}, and no matrix's")
        groups = parts.get("weight_g_idx")
        if groups is not None and bool((groups < 0).all()):
            groups = None  # -1 stands for none
        scales = _by_row(parts["weight_scale"], len(values))
        zeros = None if zeros is None else _by_row(zeros, len(values))
        return by_group(values, scales, zeros, groups, size)

    needed = {"weight_scale", "weight_shape"} if form == _PACKED else {"weight"}
    further = {"weight_zero_point"}
    if weights.get("symmetric") is False and strategy != "block":
        needed, further = needed | further, set()
    return Scheme(
        METHOD,
        bits,
        "weight_packed" if form == _PACKED else "weight_scale",
        frozenset(needed),
        _packed_shape(bits) if form == _PACKED else lambda shapes: shapes["weight"],
        restored,
        optional=frozenset({"weight_g_idx", *further}),
        unused=ACTIVATIONS | {"input_zero_point", "output_zero_point", "input_global_scale"},
        further={"format": form},
    )


def _by_row(values: "torch.Tensor", rows: int) -> "torch.Tensor":
    """(rows, g) of one value, of one for each row, or of what is so already."""
    if values.numel() == 1:
        return values.reshape(1, 1).expand(rows, 1)
    return values.reshape(rows, 1) if values.numel() == rows else values


def _one_group(fields: Mapping[str, Any], path: Path) -> tuple[str, Mapping[str, Any]]:
    """Format and fields of the one way in which all quantised matrices are."""
    form = fields.get("format")
    if form != _PACKED and form not in _WHOLE:
        raise refused(path, METHOD, f"and format {str(form)[:60]!r} is not supported")
    sparsity = fields.get("sparsity_config") or {}
    if isinstance(sparsity, dict) and sparsity.get("format", "dense") == "dense":
        sparsity = {}
    for name, value in (
        ("sparsity_config", sparsity),
        ("transform_config", fields.get("transform_config")),
    ):
        if value:
            raise refused(path, METHOD, f"with {name}, which is not supported")
    groups = fields.get("config_groups")
    ways = [*groups.values()] if isinstance(groups, dict) else []
    weights = [way.get("weights") if isinstance(way, dict) else None for way in ways]
    if not weights or not isinstance(weights[0], dict) or any(way != weights[0] for way in weights):
        raise refused(path, METHOD, "in several ways or none (config_groups); one is supported")
    if any(way.get("format") not in (None, form) for way in ways):
        raise refused(path, METHOD, "and its groups are of several formats; one is supported")
    return str(form), weights[0]


def _unpacked(
    parts: "Mapping[str, torch.Tensor]", bits: int
) -> "tuple[torch.Tensor, torch.Tensor | None]":
    """Integers (out, in) and zeros (out, g), signed; None where zeros are 0."""
    outputs, inputs = _stated_shape(parts)
    half = 1 << (bits - 1)
    values = unpacked(parts["weight_packed"], bits)
    if len(values) != outputs or not inputs <= values.shape[1] < inputs + 32 // bits:
        raise WeightsError(
            f"packed integers of {list(values.shape)} numbers have weight_shape"
            f" {[outputs, inputs]}; fetch the checkpoint again"
        )
    values = values[:, :inputs] - half
    if (packed := parts.get("weight_zero_point")) is None:
        return values, None
    return values, unpacked(packed.T.contiguous(), bits)[:, :outputs].T - half


def _stated_shape(parts: "Mapping[str, torch.Tensor]") -> tuple[int, int]:
    stated = parts["weight_shape"].flatten().tolist()
    if len(stated) != 2 or not all(type(size) is int and size > 0 for size in stated):
        raise WeightsError(f"weight_shape {stated[:4]} is no shape of a matrix")
    return stated[0], stated[1]


def _packed_shape(bits: int) -> Any:
    """By the packed integers alone: the last of a row may be padding, which plans do not see."""

    def shape(shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        outputs, columns = shapes["weight_packed"]
        return outputs, columns * 32 // bits

    return shape
