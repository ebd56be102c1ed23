"""Precision of torch's float32 products: that of the run in the body, float32 in heads."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from logitbank.engine.backends.precision import require_tf32
from logitbank.engine.backends.protocol import ComputeDtype
from logitbank.store.format.schema import Json


def multiply_as(compute_dtype: ComputeDtype) -> None:
    """Make cuBLAS and cuDNN multiply float32 in TF32 for `tf32`, and in float32 otherwise.

    cuDNN's convolutions use TF32 by default.
    """
    tf32 = compute_dtype == "tf32"
    # The older of torch's two ways, as vLLM's: mixed with the newer, the getters of this one fail.
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32


def multiply_on(device: torch.device, compute_dtype: ComputeDtype) -> None:
    """`multiply_as`, if the device supports it.

    Raises
    ------
    DeviceError
        TF32 is requested on a device without it.
    """
    gpu = device.type == "cuda"
    require_tf32(compute_dtype, torch.cuda.get_device_capability(device) if gpu else None)
    multiply_as(compute_dtype)


@contextmanager
def in_float32() -> Iterator[None]:
    """Products inside are float32, whatever the precision of the body."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def float32_products() -> Literal["ieee", "tf32"]:
    """Current precision of float32 products on a GPU."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def products_provenance(device: torch.device) -> dict[str, Json]:
    """Provenance of float32 products; a CPU has only one precision."""
    return {"float32_products": float32_products()} if device.type == "cuda" else {}


def products_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype with the rounding of this one's products: TF32 has float16's ten bits."""
    if dtype == torch.float32 and float32_products() == "tf32":
        return torch.float16
    return dtype
