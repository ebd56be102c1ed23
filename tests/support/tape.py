"""A CUDA graph, played on a CPU: what PyTorch did, done again on the same addresses.

Nothing of Python runs in a replay, as with a real one. So a pass whose Python looks at its inputs,
or that reads memory which is not there any more, replays something else than it would give.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from logitbank.engine.backends.hf.graphs import Outputs, Recording


class Tape(TorchDispatchMode):
    """Records operations with the tensors that they had."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self._steps.append((func, args, kwargs or {}, made))
        return made

    def replay(self) -> None:
        for func, args, kwargs, made in self._steps:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(made), tree_leaves(again), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class TapeRecorder:
    """Records passes as `CudaRecorder` does: run once before, for what libraries keep."""

    def __init__(self, *, held: int = 10, free: int = 1000) -> None:
        self._held, self.free_bytes = held, free

    def record(self, work: Callable[[], Outputs]) -> Recording:
        work()
        tape = Tape()
        with tape:
            outputs = work()
        return Recording(tape.replay, outputs, self._held)
