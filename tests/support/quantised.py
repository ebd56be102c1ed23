"""Quantised copies of tiny checkpoints, packed element by element from the formats' descriptions.

Each comes with the plain checkpoint of the numbers that it stands for.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

GROUP = 32
Parts = dict[str, np.ndarray]


class Quantised(NamedTuple):
    """What one matrix becomes, by the ends of the tensors' names, and what it stands for."""

    parts: Parts
    numbers: np.ndarray


def int32(values: np.ndarray) -> np.ndarray:
    return values.astype(np.uint32).view(np.int32)


def rounded(weight: np.ndarray, bits: int, *, symmetric: bool) -> tuple[np.ndarray, ...]:
    """Unsigned integers (out, in), zeros and scales (out, g), and numbers (out, in)."""
    grouped = weight.reshape(len(weight), -1, GROUP)
    high = 2**bits - 1
    if symmetric:
        scales = np.abs(grouped).max(2) / (high // 2)
        zeros = np.full(scales.shape, 2 ** (bits - 1))
    else:
        low = np.minimum(grouped.min(2), 0)
        scales = (np.maximum(grouped.max(2), 0) - low) / high
        zeros = np.clip(np.round(-low / scales), 0, high).astype(int)
    scales = scales.astype(np.float16)
    integers = np.round(grouped / scales[:, :, None].astype(np.float64)) + zeros[:, :, None]
    integers = np.clip(integers, 0, high).astype(int)
    numbers = (integers - zeros[:, :, None]) * scales[:, :, None].astype(np.float32)
    return integers.reshape(weight.shape), zeros, scales, numbers.reshape(weight.shape)


def gptq(weight: np.ndarray, *, bits: int = 4, less: int = 1, shuffled: bool = False) -> Quantised:
    order = np.random.default_rng(0).permutation(weight.shape[1]) if shuffled else None
    sorted_weight = weight if order is None else weight[:, order]
    integers, zeros, scales, numbers = rounded(sorted_weight, bits, symmetric=False)
    zeros = np.maximum(zeros, 1)
    numbers = (integers - zeros.repeat(GROUP, 1)) * scales.astype(np.float32).repeat(GROUP, 1)
    groups = np.arange(weight.shape[1]) // GROUP
    if order is not None:
        back = np.argsort(order)
        integers, numbers, groups = integers[:, back], numbers[:, back], groups[back]
    each = 32 // bits
    outputs, inputs = weight.shape
    qweight = np.zeros((inputs // each, outputs), np.uint64)
    for i in range(inputs):
        qweight[i // each] |= integers[:, i].astype(np.uint64) << np.uint64(bits * (i % each))
    qzeros = np.zeros((zeros.shape[1], outputs // each), np.uint64)
    for o in range(outputs):
        stored = (zeros[o] - less).astype(np.uint64)
        qzeros[:, o // each] |= stored << np.uint64(bits * (o % each))
    parts = {"qweight": int32(qweight), "qzeros": int32(qzeros), "scales": scales.T.copy()}
    return Quantised(parts | {"g_idx": groups.astype(np.int32)}, numbers)


def awq(weight: np.ndarray) -> Quantised:
    integers, zeros, scales, numbers = rounded(weight, 4, symmetric=False)
    places = [0, 2, 4, 6, 1, 3, 5, 7]  # outputs, from the lowest bits on

    def packed(values: np.ndarray) -> np.ndarray:
        """(rows, outputs)."""
        result = np.zeros((len(values), values.shape[1] // 8), np.uint64)
        for column in range(result.shape[1]):
            for place, output in enumerate(places):
                stored = values[:, 8 * column + output].astype(np.uint64)
                result[:, column] |= stored << np.uint64(4 * place)
        return int32(result)

    parts = {"qweight": packed(integers.T), "qzeros": packed(zeros.T), "scales": scales.T.copy()}
    return Quantised(parts, numbers)


def fp8(weight: np.ndarray, *, block: int | None = None) -> Quantised:
    import torch

    outputs, inputs = weight.shape
    size = block or max(weight.shape)
    scales = np.zeros((-(-outputs // size), -(-inputs // size)), np.float32)
    numbers = np.zeros_like(weight, dtype=np.float32)
    stored = torch.zeros(weight.shape).to(torch.float8_e4m3fn)
    for a in range(scales.shape[0]):
        for b in range(scales.shape[1]):
            at = slice(a * size, (a + 1) * size), slice(b * size, (b + 1) * size)
            scales[a, b] = np.abs(weight[at]).max() / 448
            stored[at] = torch.from_numpy(weight[at] / scales[a, b]).to(torch.float8_e4m3fn)
            numbers[at] = stored[at].float().numpy() * scales[a, b]
    if block is None:
        return Quantised({"weight": stored, "weight_scale": scales.reshape(1)}, numbers)  # type: ignore[dict-item]
    return Quantised({"weight": stored, "weight_scale_inv": scales}, numbers)  # type: ignore[dict-item]


def ct_packed(weight: np.ndarray, *, symmetric: bool = True) -> Quantised:
    integers, zeros, scales, numbers = rounded(weight, 4, symmetric=symmetric)
    packed = np.zeros((len(weight), -(-weight.shape[1] // 8)), np.uint64)
    for i in range(weight.shape[1]):
        packed[:, i // 8] |= integers[:, i].astype(np.uint64) << np.uint64(4 * (i % 8))
    parts = {
        "weight_packed": int32(packed),
        "weight_scale": scales,
        "weight_shape": np.array(weight.shape, np.int64),
    }
    if not symmetric:
        stored = np.zeros((len(weight) // 8, zeros.shape[1]), np.uint64)
        for o in range(len(weight)):
            stored[o // 8] |= zeros[o].astype(np.uint64) << np.uint64(4 * (o % 8))
        parts["weight_zero_point"] = int32(stored)
    return Quantised(parts, numbers)


def ct_int8(weight: np.ndarray) -> Quantised:
    scales = (np.abs(weight).max(1, keepdims=True) / 127).astype(np.float32)
    integers = np.clip(np.round(weight / scales), -128, 127).astype(np.int8)
    return Quantised({"weight": integers, "weight_scale": scales}, integers * scales)


def ct_float8(weight: np.ndarray) -> Quantised:
    import torch

    scales = (np.abs(weight).max(1, keepdims=True) / 448).astype(np.float32)
    stored = torch.from_numpy(weight / scales).to(torch.float8_e4m3fn)
    parts = {"weight": stored, "weight_scale": scales, "input_scale": np.ones(1, np.float32)}
    return Quantised(parts, stored.float().numpy() * scales)  # type: ignore[arg-type]


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    """The config of compressed-tensors with one group."""
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


PACKED_WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP}
METHODS: dict[str, tuple[dict[str, Any], Callable[[np.ndarray], Quantised]]] = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False}, gptq),
    "gptq-8-act-order": (
        {"quant_method": "gptq", "bits": 8, "group_size": GROUP, "desc_act": True},
        lambda w: gptq(w, bits=8, shuffled=True),
    ),
    "gptq-v2": (
        {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "checkpoint_format": "gptq_v2"},
        lambda w: gptq(w, less=0),
    ),
    "awq": (
        {
            "quant_method": "awq",
            "bits": 4,
            "group_size": GROUP,
            "zero_point": True,
            "version": "gemm",
        },
        awq,
    ),
    "fp8": ({"quant_method": "fp8", "activation_scheme": "dynamic"}, fp8),
    "fp8-blocks": (
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [48, 48]},
        lambda w: fp8(w, block=48),
    ),
    "ct-packed": (compressed("pack-quantized", symmetric=True, **PACKED_WEIGHTS), ct_packed),
    "ct-packed-zeros": (
        compressed("pack-quantized", symmetric=False, **PACKED_WEIGHTS),
        lambda w: ct_packed(w, symmetric=False),
    ),
    "ct-int8": (
        compressed("int-quantized", num_bits=8, type="int", strategy="channel", symmetric=True),
        ct_int8,
    ),
    "ct-float8": (
        compressed("float-quantized", num_bits=8, type="float", strategy="channel", symmetric=True),
        ct_float8,
    ),
}
"""A config and what makes the tensors, of each method and what it may be with."""


def quantised_checkpoint(plain: Path, folder: Path, method: str) -> tuple[Path, Path]:
    """A checkpoint with quantised linear layers, and a plain one of what they stand for."""
    import torch
    from safetensors.torch import load_file, save_file

    fields, quantise = METHODS[method]
    packed, whole = folder / method, folder / f"{method}-numbers"
    for each in (packed, whole):
        shutil.copytree(plain, each)
    stored: dict[str, torch.Tensor] = {}
    numbers: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            made = quantise(tensor.numpy())
            module = name.removesuffix("weight")
            stored |= {f"{module}{end}": torch.as_tensor(part) for end, part in made.parts.items()}
            numbers[name] = torch.from_numpy(made.numbers.astype(np.float32)).contiguous()
        else:
            stored[name] = numbers[name] = tensor
    save_file({n: t.contiguous() for n, t in stored.items()}, packed / "model.safetensors")
    save_file(numbers, whole / "model.safetensors")
    set_quantisation(packed, fields)
    return packed, whole


def set_quantisation(folder: Path, fields: Mapping[str, Any] | None) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"quantization_config": fields}))
