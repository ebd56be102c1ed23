"""A real follower of rank 0 with one fault, which an environment variable names.

`python -m tests.support.played_follower DESCRIPTOR`, in place of the real one.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from logitbank.engine.backends.vllm import engine, held
from logitbank.engine.workers.ranks import follower
from tests.support.preloaded import FAULT


def _wrong(name: str) -> None:
    """One element of a parameter that this rank holds is another after every swap."""
    honest = held.Held.pieces

    def pieces(self: held.Held, model: torch.nn.Module) -> list[held.Piece]:
        dict(model.named_parameters())[name].data.view(-1)[3] += 1
        return honest(self, model)

    held.Held.pieces = pieces  # type: ignore[method-assign]


def _stale(name: str) -> None:
    """A tensor is read from another file than rank 0's."""
    honest = engine.stream_weights

    def stream(folder: Path, **options: Any) -> Iterator[tuple[str, torch.Tensor]]:
        for each, tensor in honest(folder, **options):
            yield each, tensor * 2 if each == name else tensor

    engine.stream_weights = stream


def _short(_: str) -> None:
    """There is no memory for batches of more than half the usual size."""
    honest = engine.VllmEngine.load

    def load(self: engine.VllmEngine, *args: Any, **options: Any) -> Any:
        if self._settings.max_batch_tokens > 2048:
            raise MemoryError("this device is out of memory")
        return honest(self, *args, **options)

    engine.VllmEngine.load = load  # type: ignore[method-assign]


if __name__ == "__main__":
    fault, _, name = os.environ[FAULT].partition(" ")
    {"wrong": _wrong, "stale": _stale, "short": _short}[fault](name)
    follower.main(int(sys.argv[1]))
