"""How torch multiplies float32 in this process: as the run says, and heads in float32 always."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from logitbank.engine.backends.precision import require_tf32
from logitbank.engine.backends.protocol import ComputeDtype
from logitbank.store.format.schema import Json


def multiply_as(compute_dtype: ComputeDtype) -> None:
    """Let cuBLAS and cuDNN multiply float32 in TF32 where that is named, and else in float32.

    Set, and not left to defaults: cuDNN's convolutions have TF32 unless told otherwise.
    """
    tf32 = compute_dtype == "tf32"
    # The older of torch's two ways, as vLLM's: mixed with the newer, the getters of this one fail.
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32


def multiply_on(device: torch.device, compute_dtype: ComputeDtype) -> None:
    """As `multiply_as`, where the device can.

    Raises
    ------
    DeviceError
        TF32 is named, and the device has none.
    """
    gpu = device.type == "cuda"
    require_tf32(compute_dtype, torch.cuda.get_device_capability(device) if gpu else None)
    multiply_as(compute_dtype)


@contextmanager
def in_float32() -> Iterator[None]:
    """Products inside have float32's own precision, whatever those of the body have.

    torch looks at the setting when a product is begun, so this costs nothing on the device.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def float32_products() -> Literal["ieee", "tf32"]:
    """How products of float32 that begin now are made on a GPU."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def products_provenance(device: torch.device) -> dict[str, Json]:
    """What provenance says of products of float32; a processor has one way to make them."""
    return {"float32_products": float32_products()} if device.type == "cuda" else {}


def products_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype whose rounding products of this one have: TF32 has float16's ten bits."""
    if dtype == torch.float32 and float32_products() == "tf32":
        return torch.float16
    return dtype
