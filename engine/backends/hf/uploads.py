"""Numbers of a batch on their way to a device, in one copy that nobody waits for."""

from collections.abc import Callable

import numpy as np
import torch

from logitbank.engine.backends.hf.shapes import next_size
from logitbank.engine.weights.upload import page_locked


class Uploads:
    """Two buffers of pinned memory, of which one is filled while the other is sent.

    A buffer is filled again once its copy is done, so the host is at most two batches ahead.
    Devices other than GPUs are sent new memory each time.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers = [torch.empty(0, dtype=torch.int64)] * 2
        self._sent: list[torch.cuda.Event | None] = [None, None]
        self._turn = 0

    def send(self, count: int, fill: Callable[[np.ndarray], None]) -> torch.Tensor:
        """(count,) int64 on the device, of an array that `fill` has filled."""
        if self._device.type != "cuda":
            host = torch.empty(count, dtype=torch.int64)
            fill(host.numpy())
            return host.to(self._device)
        turn = self._turn = 1 - self._turn
        if (sent := self._sent[turn]) is not None:
            sent.synchronize()
        if self._buffers[turn].numel() < count:
            self._buffers[turn] = pinned(next_size(count))
        host = self._buffers[turn][:count]
        fill(host.numpy())
        on_device = begun_copy(host, self._device)
        done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        done.record(torch.cuda.current_stream(self._device))
        self._sent[turn] = done
        return on_device


def pinned(count: int) -> torch.Tensor:
    """(count,) int64 of memory that a GPU copies from by itself."""
    return page_locked((count,), torch.int64)


def begun_copy(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy on the device, in the order of what the device is given to do."""
    return host.to(device, non_blocking=True)
