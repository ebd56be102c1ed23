"""The workers of a run: processes of this machine, or actors on a Ray cluster."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Protocol, Self

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.parallel import ParallelConfig, Share, visible_devices
from logitbank.engine.workers.job import WorkerHandle
from logitbank.engine.workers.worker_process import WorkerProcess


class Pool(AbstractContextManager["Pool"], Protocol):
    """Workers with one engine each. Leaving it kills those that have not been stopped."""

    @property
    def workers(self) -> Sequence[WorkerHandle]: ...

    @property
    def on_gpu(self) -> bool:
        """Whether its workers have GPUs."""

    def start(self) -> None:
        """Start the workers, which import their engines; otherwise each starts at its first job."""

    def use(self, settings: EngineSettings) -> None:
        """Take other settings, before the next job."""

    def stop(self) -> None:
        """End the workers, none of which has a job."""


class LocalPool:
    """Worker processes of this machine, each on its own GPU or part of the cores."""

    def __init__(self, bank: Path, settings: EngineSettings, count: int) -> None:
        shares = [Share(i, count) for i in range(count)]
        self.workers = [WorkerProcess(bank, settings, share) for share in shares]
        self._ends = ExitStack()

    @property
    def on_gpu(self) -> bool:
        return bool(visible_devices(os.environ))

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def use(self, settings: EngineSettings) -> None:
        for worker in self.workers:
            worker.use(settings)

    def stop(self) -> None:
        with ThreadPoolExecutor(len(self.workers)) as threads:
            list(threads.map(lambda worker: worker.stop(), self.workers))

    def __enter__(self) -> Self:
        for worker in self.workers:
            self._ends.enter_context(worker)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()


def first_worker(bank: Path, settings: EngineSettings, count: int) -> WorkerProcess:
    """One worker alone, with its part of the machine where `count` are to run."""
    return WorkerProcess(bank, settings, Share(0, count))


def open_pool(bank: Path, settings: EngineSettings, parallel: ParallelConfig) -> Pool:
    """The workers that a run is to have."""
    if parallel.ray is None:
        return LocalPool(bank, settings, parallel.workers)
    from logitbank.engine.workers.ray_worker import RayPool

    return RayPool(parallel.ray, bank, settings, parallel.workers)
