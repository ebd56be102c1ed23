"""Work and copies beside a device's own, which nothing waits for until somebody wants them."""

import functools
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch

AHEAD = 2
"""Batches that the device may still have to reduce when the next is handed over. More would hold
more of its memory, and save no time: it does one thing after the other."""


class WorkUnit:
    """Something begun beside a device's own work."""

    def __init__(self, done: torch.cuda.Event | None) -> None:
        self._done = done

    def wait(self) -> None:
        """Until it is done; from any thread. Nothing to wait for where the host did it itself."""
        if self._done is not None:
            self._done.synchronize()


class Beside:
    """A stream of CUDA's beside the one that a model runs on; of other devices, that one itself."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        on_gpu = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]
        self._begun: deque[torch.cuda.Event] = deque()

    @contextmanager
    def after(self, *given: torch.Tensor) -> Iterator[WorkUnit]:
        """What is begun in here runs once what was given is made; the model's stream goes on.

        Waits where more than `AHEAD` such pieces are not done.
        """
        if self._stream is None:
            yield WorkUnit(None)
            return
        while len(self._begun) >= AHEAD:
            self._begun.popleft().synchronize()
        # A thread that waits leaves its core to others, which compress blocks.
        done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        for tensor in given:  # their memory is not given to another before this stream is done
            tensor.record_stream(self._stream)
        with torch.cuda.stream(self._stream):
            yield WorkUnit(done)
            done.record(self._stream)
        self._begun.append(done)

    def reserve(self, size: int) -> None:
        """Take so many bytes of the device, which PyTorch then keeps for tensors of this stream."""
        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                torch.empty(size, dtype=torch.uint8, device=self._device)

    def to_device(self, host: torch.Tensor) -> torch.Tensor:
        """A copy on the device."""
        return host.to(self._device)

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the host."""
        return tensor.cpu()


@functools.cache
def beside(device: torch.device) -> Beside:
    """The one of a device: what a stream's tensors took of its memory, PyTorch keeps for tensors of
    that stream. A new stream for every few blocks would take up to 32 times as much."""
    return Beside(device)
