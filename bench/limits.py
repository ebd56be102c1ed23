"""What this machine can do at most: matrix products, memory, disk."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates of this machine or device."""

    flops: float
    """Multiplications and additions a second of a large float32 matrix product."""
    memory: float
    """Bytes a second of a large copy, reading and writing counted."""
    disk: float
    """Bytes a second of a file written and made durable."""

    def __str__(self) -> str:
        return (
            f"{self.flops / 1e9:,.0f} GFLOP/s, {self.memory / 1e9:.1f} GB/s of memory, "
            f"{self.disk / 1e9:.2f} GB/s of disk"
        )


def measured(folder: Path) -> Limits:
    """The best of several tries, on the GPU where there is one; on a CPU by its quicker library."""
    import torch

    from logitbank.engine.backends.products import linear

    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = 8192 if device == "cuda" else 2048

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    product = min(_best(lambda: (torch.mm(a, b), wait())), _best(lambda: (linear(a, b), wait())))
    source = torch.empty(2**27, device=device).normal_()  # 512 MB
    target = torch.empty_like(source)
    copy = _best(lambda: (target.copy_(source), wait()))
    block = np.zeros(2**28, np.uint8)
    written = _best(lambda: _write(folder / "disk", block), tries=3)
    return Limits(2 * size**3 / product, 2 * source.nbytes / copy, block.nbytes / written)


def _write(path: Path, block: "np.ndarray") -> None:
    with path.open("wb") as file:
        file.write(block)
        file.flush()
        os.fsync(file.fileno())
    path.unlink()


def _best(work: object, tries: int = 7) -> float:
    seconds = []
    for _ in range(tries):
        start = time.perf_counter()
        work()  # type: ignore[operator]
        seconds.append(time.perf_counter() - start)
    return min(seconds)
