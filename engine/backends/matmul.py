"""Linear layers in float32 on processors where MKL, PyTorch's default library, is slow."""

import functools
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

_VENDOR = "GenuineIntel"
_PROCESSORS = Path("/proc/cpuinfo")


@functools.cache
def onednn_is_faster() -> bool:
    """Whether PyTorch uses MKL on a processor that is not Intel's.

    On an AMD EPYC with AVX-512 MKL reached 215 GFLOP/s of float32 and oneDNN 490, on two cores.
    PyTorch uses oneDNN for narrower types itself, and vLLM also for float32.
    """
    backends: Any = torch.backends
    libraries = backends.mkl.is_available() and backends.mkldnn.is_available()
    if not libraries or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    try:
        lines = _PROCESSORS.read_text().splitlines()
    except OSError:  # not Linux
        return False
    vendors = {line.split(":")[-1].strip() for line in lines if line.startswith("vendor_id")}
    return bool(vendors) and _VENDOR not in vendors


def linear(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """`torch.nn.functional.linear`, by oneDNN for float32 on a CPU if that is faster."""
    if _by_onednn(rows, weight) and onednn_is_faster():
        return onednn_linear(rows, weight, bias)
    return functional.linear(rows, weight, bias)


def onednn_linear(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return product


def use_fast_matmul(model: torch.nn.Module) -> None:
    """Make a model's linear layers compute by `linear`, also after their weights change."""
    if not onednn_is_faster():
        return
    for layer in model.modules():
        if type(layer) is torch.nn.Linear:
            layer.forward = functools.partial(_forward, layer)  # type: ignore[method-assign]
        elif type(layer) is Conv1D:
            layer.forward = functools.partial(_transposed_forward, layer)


def _forward(layer: Any, input: torch.Tensor) -> torch.Tensor:
    return linear(input, layer.weight, layer.bias)


def _transposed_forward(layer: Any, x: torch.Tensor) -> torch.Tensor:
    return linear(x, layer.weight.t(), layer.bias)


def _by_onednn(rows: torch.Tensor, weight: torch.Tensor) -> bool:
    return (
        rows.dtype == weight.dtype == torch.float32
        and rows.device.type == weight.device.type == "cpu"
        and rows.numel() > 0
    )
