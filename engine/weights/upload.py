"""Copies to a device that nobody waits for."""

import torch


def to_device(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the host's on a device; on a GPU its copy is begun, and what uses it comes after.

    A copy from memory that is not pinned would wait until the GPU has done all that it was given.
    """
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)
