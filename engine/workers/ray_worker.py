"""Workers on a Ray cluster: each is an actor that runs an engine's process on its machine.

The actor is small and imports no engine: it holds a WorkerProcess, as an extraction without Ray
does. So the death of an engine, perhaps because of its checkpoint, differs from a lost machine.
"""

import contextlib
import math
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from logitbank.engine.backends.protocol import EngineStart
from logitbank.engine.workers.events import CheckpointFailed, CheckpointStopped, Event, Job
from logitbank.engine.workers.pool import Pool
from logitbank.engine.workers.worker_process import WorkerProcess
from logitbank.errors import EngineError, UsageError
from logitbank.store.cluster import joined

VISIBLE_S = 15.0
"""How long a shared file system may take to show a new file on another machine."""


@dataclass(frozen=True, slots=True)
class WorkerResources:
    """Number of workers on a cluster, and the resources that each requests."""

    count: int
    gpus: int
    cpus: int
    threads: int
    """Threads of each of a worker's processes."""

    @classmethod
    def plan(cls, nodes: Sequence[dict[str, float]], workers: int = 0) -> Self:
        """One worker for each GPU, or for each machine if there are no GPUs, or `workers`.

        Workers without a place wait until a machine joins.

        Examples
        --------
        >>> WorkerResources.plan([{"CPU": 2}, {"CPU": 64, "GPU": 4}, {"CPU": 64, "GPU": 4}])
        WorkerResources(count=8, gpus=1, cpus=0, threads=16)
        >>> WorkerResources.plan([{"CPU": 16}, {"CPU": 16}], workers=4)
        WorkerResources(count=4, gpus=0, cpus=8, threads=8)
        """
        with_gpu = [node for node in nodes if node.get("GPU", 0) >= 1]
        gpus = sum(int(node["GPU"]) for node in with_gpu)
        if gpus:
            cpus = sum(int(node.get("CPU", 0)) for node in with_gpu)
            return cls(workers or gpus, 1, 0, max(1, cpus // gpus))
        with_cpu = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1]
        if not (with_cpu or workers):
            raise UsageError("The Ray cluster has neither GPUs nor CPUs yet. Fix: use --workers N.")
        count = workers or len(with_cpu)
        per_machine = math.ceil(count / max(1, len(with_cpu)))
        cpus = max(1, min(with_cpu, default=1) // per_machine)
        return cls(count, 0, cpus, cpus)


class RayPool(Pool):
    """Workers on a Ray cluster, one for each GPU or machine, or as many as requested."""

    def __init__(self, address: str, bank: Path, engine: EngineStart, workers: int) -> None:
        super().__init__()
        self.bank, self.engine = bank.resolve(), engine
        self._address, self._count = address, workers

    def __enter__(self) -> Self:
        self.ray = self.ends.enter_context(joined(self._address))
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        self.resources = WorkerResources.plan(nodes, self._count)
        self.on_gpu = self.resources.gpus > 0
        self.actor = self.ray.remote(
            num_cpus=self.resources.cpus,
            num_gpus=self.resources.gpus,
            max_restarts=0,  # the worker places a new actor instead, on any machine
            max_concurrency=4,  # `interrupt` during `run`
            scheduling_strategy="SPREAD",
        )(Actor)
        workers = [RayWorker(self) for _ in range(self.resources.count)]
        for worker in workers:
            self.ends.callback(worker.close)
        self.workers = workers
        return self

    @cached_property
    def marker(self) -> Path:
        """A file beside the bank that shows whether a machine has the same file system."""
        number, name = tempfile.mkstemp(prefix=f"{self.bank.name}.run-", dir=self.bank.parent)
        os.close(number)
        self.ends.callback(Path(name).unlink, missing_ok=True)
        return Path(name)


class RayWorker:
    """The run's side: places an actor, sends jobs, reads events, replaces a lost actor."""

    def __init__(self, pool: RayPool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._actor: Any = None
        self._placed: Any = None
        """Future of the actor's host name."""
        self._host = ""
        self._closed = False

    def start(self) -> None:
        """Request a place on the cluster; the actor there starts to import its engine."""
        with self._lock:
            if self._closed:
                raise EngineError("The run is over.")
            if self._actor is None:
                pool = self._pool
                self._actor = pool.actor.remote(pool.bank, pool.engine, pool.resources.threads)
                self._placed = self._actor.start.remote()

    def ready(self) -> bool:
        """Whether the worker has a place; does not wait for one."""
        ray = self._pool.ray
        self.start()
        placed, _ = ray.wait([self._placed], timeout=0)
        if not placed:
            return False
        try:
            self._host = ray.get(self._placed)
        except ray.exceptions.RayError as error:
            if getattr(error, "actor_init_failed", True) and not _out_of_memory(ray, error):
                raise EngineError(f"no worker starts on the Ray cluster: {error}") from error
            self.kill()  # its machine was lost meanwhile
            return False
        return True

    def run(self, job: Job) -> Iterator[Event]:
        """Events of `job`; the last one is its Outcome."""
        ray, host = self._pool.ray, self._host
        try:
            streaming = self._actor.run.options(num_returns="streaming")
            for event in streaming.remote(job, self._pool.marker):
                yield ray.get(event)
        except ray.exceptions.RayTaskError as error:  # an unexpected error in the actor
            yield CheckpointFailed(job.checkpoint, f"{job.checkpoint}: {error}", "engine")
        except (ray.exceptions.RayError, AttributeError) as error:
            if self._closed:
                raise EngineError("The run is over.") from None
            lines = str(error).strip().splitlines() or [type(error).__name__]
            message = f"{job.checkpoint}: its worker on {host} is gone ({lines[0]})"
            self.kill()
            out_of_memory = _out_of_memory(ray, error)
            yield CheckpointFailed(job.checkpoint, message, "lost", out_of_memory)

    def interrupt(self) -> None:
        """Request that the job stops after its current block. Any thread may call this."""
        with self._lock:
            if self._actor is not None:
                self._actor.interrupt.remote()

    def stop(self) -> None:
        """End the engine's process, which has no job, and the actor."""
        if self._host and self._actor is not None:
            ray = self._pool.ray
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(self._actor.stop.remote(), timeout=20)
        self.kill()

    def kill(self) -> None:
        """End the actor at once, and with it the engine's process."""
        with self._lock:
            actor, self._actor, self._placed, self._host = self._actor, None, None, ""
        if actor is not None:
            self._pool.ray.kill(actor)

    def close(self) -> None:
        """End the actor for good."""
        self._closed = True  # a thread that still uses it starts no other actor
        self.kill()


class Actor:
    """The cluster's side: the engine's process on this machine, which ends with the actor."""

    def __init__(self, bank: Path, engine: EngineStart, threads: int) -> None:
        os.environ["OMP_NUM_THREADS"] = str(threads)  # Ray's default with GPUs is one thread
        self._bank = bank
        self._process = WorkerProcess(bank, engine)
        self._interrupted = False

    def start(self) -> str:
        """Start the process, and return the host name."""
        self._process.start()
        return socket.gethostname()

    def run(self, job: Job, marker: Path) -> Iterator[Event]:
        for kind, path, file in (
            ("bank", self._bank, marker),
            ("checkpoint", job.folder, job.folder),
        ):
            if not _is_visible(file):
                yield CheckpointFailed(
                    job.checkpoint,
                    f"{socket.gethostname()} does not see the {kind} {path} of the machine that"
                    f" started the run ({file.name} is absent); all machines of a Ray cluster need"
                    " the bank, the checkpoints and the hub's cache (HF_HOME) on one file system",
                    "fatal",
                )
                return
        if self._interrupted:
            yield CheckpointStopped(job.checkpoint)
            return
        yield from self._process.run(job)

    def interrupt(self) -> None:
        self._interrupted = True
        self._process.interrupt()

    def stop(self) -> None:
        self._process.stop()


def _is_visible(path: Path) -> bool:
    deadline = time.monotonic() + VISIBLE_S
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _out_of_memory(ray: Any, error: Exception) -> bool:
    """Whether Ray killed the worker because its machine ran short of memory."""
    # Ray's message for any other SIGKILL also mentions memory, as one of several reasons.
    killed = isinstance(error, ray.exceptions.OutOfMemoryError)
    return killed or "running low on memory" in str(error)
