"""Work and copies beside a device's own, which nothing waits for until somebody wants them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from logitbank.engine.weights.upload import to_device

AHEAD = 2
"""Batches that the device may still have to reduce when the next is handed over. More would hold
more of its memory, and save no time: it does one thing after the other."""


class Beside:
    """A stream of CUDA's beside the one that a model runs on; of other devices, that one itself."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        on_gpu = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]
        self._done: list[torch.cuda.Event] = []

    @contextmanager
    def after(self, *given: torch.Tensor) -> Iterator[None]:
        """What is begun in here runs once what was given is made; the model's stream goes on.

        Waits where more than `AHEAD` such pieces are not done.
        """
        if self._stream is None:
            yield
            return
        while len(self._done) >= AHEAD:
            self._done.pop(0).synchronize()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield
            self._done.append(self._stream.record_event())
        for tensor in given:  # their memory is not given to another before this stream is done
            tensor.record_stream(self._stream)

    def to_device(self, host: torch.Tensor) -> torch.Tensor:
        """A copy on the device that is begun, and that nobody waits for."""
        return to_device(host, self._device)

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the host, to be looked at only after `wait`."""
        if self._stream is None:
            return tensor.cpu()
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return host.copy_(tensor, non_blocking=True)

    def wait(self) -> None:
        """Until everything that was begun is done; from any thread."""
        if self._stream is not None:
            self._stream.synchronize()
