"""The workers of a run, and those that are processes of this machine."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, Self

from logitbank.engine.backends.gpus import visible_devices
from logitbank.engine.backends.protocol import EngineStart
from logitbank.engine.plan.parallel import MachinePart
from logitbank.engine.workers.events import Event, Job
from logitbank.engine.workers.worker_process import WorkerProcess, log_path


class WorkerHandle(Protocol):
    """The run's side of a worker."""

    def start(self) -> None:
        """Start, and import the engine."""

    def stop(self) -> None:
        """End it when it has closed its engine."""

    def ready(self) -> bool:
        """Whether the worker can take a job now; on a cluster it may wait for a machine."""

    def run(self, job: Job) -> Iterator[Event]:
        """Events of the job; the last one is its Outcome."""

    def interrupt(self) -> None:
        """Request that the job stops after its current block. Any thread may call this."""


class Pool:
    """Workers with one engine each. Leaving the context kills workers that have not stopped."""

    on_gpu = False
    """Whether the workers have GPUs."""

    def __init__(self) -> None:
        self.workers: Sequence[WorkerHandle] = ()
        self.ends = ExitStack()

    def start(self) -> None:
        """Start the workers, which import their engines; otherwise each starts at its first job."""
        for worker in self.workers:
            worker.start()

    def stop(self) -> None:
        """End the workers, which have no job."""
        with ThreadPoolExecutor(len(self.workers)) as threads:
            list(threads.map(lambda worker: worker.stop(), self.workers))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.close()


class LocalPool(Pool):
    """Worker processes of this machine, each on its own GPU or part of the cores."""

    def __init__(
        self, bank: Path, engine: EngineStart, count: int, *, shared_log: bool = False
    ) -> None:
        """At the end an empty new log is deleted, unless other runs write to it (`shared_log`)."""
        super().__init__()
        self.on_gpu = bool(visible_devices(os.environ))
        log = log_path(bank)
        if not (shared_log or log.exists()):
            self.ends.callback(_delete_empty, log)
        parts = [MachinePart(i, count) for i in range(count)]
        self.workers = [
            self.ends.enter_context(WorkerProcess(bank, engine, part)) for part in parts
        ]


def _delete_empty(log: Path) -> None:
    if log.exists() and not log.stat().st_size:
        log.unlink(missing_ok=True)


def first_worker(bank: Path, engine: EngineStart, count: int) -> WorkerProcess:
    """A single worker with its part of the machine, as one of `count`."""
    return WorkerProcess(bank, engine, MachinePart(0, count))
