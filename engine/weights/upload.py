"""Copies to and from a GPU that nobody waits for, and the memory that they want: page-locked."""

from collections.abc import Sequence

import torch

_refusals: list[str] = []


def to_device(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the host's on a device; on a GPU its copy is begun, and what uses it comes after.

    A copy from memory that is not page-locked would wait until the GPU has done all that it was
    given.
    """
    if device.type != "cuda":
        return host.to(device)
    return page_locked(host.shape, host.dtype).copy_(host).to(device, non_blocking=True)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A GPU's tensor on the host: its copy is begun, and done where memory is not page-locked."""
    host = page_locked(tensor.shape, tensor.dtype)
    return host.copy_(tensor, non_blocking=host.is_pinned())


def page_locked(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """New memory of the host: page-locked, or as any other where the system gives no more of that.

    Some systems give little, WSL 2 a gigabyte or less. Copies are slower then, and no less right.
    """
    try:
        return torch.empty(shape, dtype=dtype, pin_memory=True)
    except RuntimeError as error:
        if "out of memory" not in str(error).lower():
            raise
        _refusals[:] = [str(error).partition("\n")[0]]
        return torch.empty(shape, dtype=dtype)


def page_locked_refusal() -> str:
    """What the system said when it gave no page-locked memory; nothing where it always did."""
    return _refusals[0] if _refusals else ""
