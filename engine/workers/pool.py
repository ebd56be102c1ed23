"""The workers of a run: processes of this machine, or actors on a Ray cluster."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Protocol, Self

from logitbank.engine.backends.protocol import EngineStart
from logitbank.engine.plan.parallel import MachinePart, ParallelConfig, visible_devices
from logitbank.engine.workers.events import Event, Job
from logitbank.engine.workers.worker_process import WorkerProcess, log_path


class WorkerHandle(Protocol):
    """The run's side of a worker."""

    def ready(self) -> bool:
        """Whether the worker can take a job now; on a cluster it may wait for a machine."""

    def run(self, job: Job) -> Iterator[Event]:
        """Events of the job; the last one is its Outcome."""

    def interrupt(self) -> None:
        """Request that the job stops after its current block. Any thread may call this."""


class Pool(AbstractContextManager["Pool"], Protocol):
    """Workers with one engine each. Leaving the context kills workers that have not stopped."""

    @property
    def workers(self) -> Sequence[WorkerHandle]: ...

    @property
    def on_gpu(self) -> bool:
        """Whether the workers have GPUs."""

    def start(self) -> None:
        """Start the workers, which import their engines; otherwise each starts at its first job."""

    def stop(self) -> None:
        """End the workers, which have no job."""


class LocalPool:
    """Worker processes of this machine, each on its own GPU or part of the cores."""

    def __init__(
        self, bank: Path, engine: EngineStart, count: int, *, shared_log: bool = False
    ) -> None:
        """At the end an empty new log is deleted, unless other runs write to it (`shared_log`)."""
        log = log_path(bank)
        self._new_log = None if shared_log or log.exists() else log
        shares = [MachinePart(i, count) for i in range(count)]
        self.workers = [WorkerProcess(bank, engine, share) for share in shares]
        self._ends = ExitStack()

    @property
    def on_gpu(self) -> bool:
        return bool(visible_devices(os.environ))

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def stop(self) -> None:
        with ThreadPoolExecutor(len(self.workers)) as threads:
            list(threads.map(lambda worker: worker.stop(), self.workers))

    def __enter__(self) -> Self:
        for worker in self.workers:
            self._ends.enter_context(worker)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()
        log = self._new_log
        if log is not None and log.exists() and not log.stat().st_size:
            log.unlink(missing_ok=True)


def first_worker(bank: Path, engine: EngineStart, count: int) -> WorkerProcess:
    """A single worker with its part of the machine, as one of `count`."""
    return WorkerProcess(bank, engine, MachinePart(0, count))


def open_pool(bank: Path, engine: EngineStart, parallel: ParallelConfig) -> Pool:
    """The workers that a run requests."""
    if parallel.ray is None:
        shared_log = parallel.shard is not None
        return LocalPool(bank, engine, parallel.workers, shared_log=shared_log)
    from logitbank.engine.workers.ray_worker import RayPool

    return RayPool(parallel.ray, bank, engine, parallel.workers)
