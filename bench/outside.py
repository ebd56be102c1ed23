"""What one scored checkpoint costs beside the model: scheduling, capture, reduction, writing."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.contender import Round
from bench.scoring import Scoring
from bench.workload import Kind


def outside(checkpoint: str, count: int, prompts: Kind, folder: str) -> Round:
    """Share of the process's CPU time that no forward pass nor output head took.

    The model runs in the main thread and in its pool's; a pool that spins while it waits is the
    model's too. Everything else is ours or vLLM's: the rest of the main thread, and all others.
    """
    scoring = Scoring(checkpoint, count, prompts, engine="vllm", folder=folder)
    scoring.once()
    meter = _Meter()
    backend: Any = scoring.worker._backend
    backend._llm.apply_model(meter.watch)

    before: dict[int, float] = {}

    def loaded() -> None:
        """The swap of weights is no part of it."""
        meter.seconds = 0.0
        before.update(_threads())

    scoring.on_loaded = loaded

    def once() -> float:
        scoring.once()
        after = _threads()
        spent = {tid: after[tid] - before.get(tid, 0.0) for tid in after}
        total = sum(spent.values())
        return (total - meter.seconds - sum(spent.get(tid, 0.0) for tid in meter.pool)) / total

    once()
    return once


class _Meter:
    """CPU seconds of the main thread in the model, and the threads that work for it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pool: set[int] = set()
        self._own = threading.get_native_id()

    def watch(self, model: Any) -> None:
        for name in ("forward", "compute_logits"):
            setattr(model, name, self._timed(getattr(model, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            before = {} if self.pool else _threads()  # the first pass: nothing is written yet
            start = time.thread_time()
            try:
                return method(*arguments, **named)
            finally:
                self.seconds += time.thread_time() - start
                if before:
                    now = _threads()
                    busy = {tid for tid, s in now.items() if s - before.get(tid, 0.0) > 1e-3}
                    self.pool = busy - {self._own}

        return timed


def _threads() -> dict[int, float]:
    """CPU seconds of each thread of this process."""
    found = {}
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/schedstat") as file:
            found[int(task)] = int(file.read().split()[0]) / 1e9
    return found
