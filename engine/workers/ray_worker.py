"""Workers on a Ray cluster: each is an actor with an engine's process on a machine of its own.

The actor is small and imports no engine: it keeps a WorkerProcess, as an extraction without Ray
does. So an engine that dies is told from a machine that is gone, and only the first may be its
checkpoint's fault.
"""

import contextlib
import math
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.events import CheckpointFailed, CheckpointStopped, Event
from logitbank.engine.workers.job import Job
from logitbank.engine.workers.worker_process import WorkerProcess
from logitbank.errors import EngineError, UsageError
from logitbank.store.cluster import joined

SEEN_S = 15.0
"""How long a shared file system may take to show a new file on another machine."""


@dataclass(frozen=True, slots=True)
class Places:
    """How many workers a cluster has room for, and what each asks it for."""

    count: int
    gpus: int
    cpus: int
    threads: int
    """Of each of a worker's processes."""

    @classmethod
    def of(cls, nodes: Sequence[dict[str, float]], workers: int = 0) -> Self:
        """A worker for each GPU; where there are none, one for each machine. Or as many as asked.

        More than there is room for wait until a machine joins.

        Examples
        --------
        >>> Places.of([{"CPU": 2}, {"CPU": 64, "GPU": 4}, {"CPU": 64, "GPU": 4}])
        Places(count=8, gpus=1, cpus=0, threads=16)
        >>> Places.of([{"CPU": 16}, {"CPU": 16}], workers=4)
        Places(count=4, gpus=0, cpus=8, threads=8)
        """
        with_gpu = [node for node in nodes if node.get("GPU", 0) >= 1]
        gpus = sum(int(node["GPU"]) for node in with_gpu)
        if gpus:
            cpus = sum(int(node.get("CPU", 0)) for node in with_gpu)
            return cls(workers or gpus, 1, 0, max(1, cpus // gpus))
        with_cpu = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1]
        if not (with_cpu or workers):
            raise UsageError(
                "the Ray cluster has neither GPUs nor CPUs yet; say how many --workers"
            )
        count = workers or len(with_cpu)
        each = math.ceil(count / max(1, len(with_cpu)))
        cpus = max(1, min(with_cpu, default=1) // each)
        return cls(count, 0, cpus, cpus)


class RayPool:
    """Workers on a Ray cluster, one for each GPU or machine, or as many as requested."""

    def __init__(self, address: str, bank: Path, settings: EngineSettings, workers: int) -> None:
        self.bank = bank.resolve()
        self._address, self._settings, self._count = address, settings, workers
        self._ends = contextlib.ExitStack()
        self.workers: Sequence[RayWorker] = ()

    def __enter__(self) -> Self:
        self.ray = self._ends.enter_context(joined(self._address))
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        self.places = Places.of(nodes, self._count)
        self.actor = self.ray.remote(
            num_cpus=self.places.cpus,
            num_gpus=self.places.gpus,
            max_restarts=0,  # a new one is placed instead, on any machine
            max_concurrency=4,  # `interrupt` while `run` goes on
            scheduling_strategy="SPREAD",
        )(Actor)
        self.workers = [RayWorker(self, self._settings) for _ in range(self.places.count)]
        for worker in self.workers:
            self._ends.enter_context(worker)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @cached_property
    def sign(self) -> Path:
        """A file beside the bank by which a machine sees that it has the same file system."""
        number, name = tempfile.mkstemp(prefix=f"{self.bank.name}.run-", dir=self.bank.parent)
        os.close(number)
        self._ends.callback(Path(name).unlink, missing_ok=True)
        return Path(name)

    @property
    def on_gpu(self) -> bool:
        return self.places.gpus > 0

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def use(self, settings: EngineSettings) -> None:
        _ = self.sign  # there is a bank now
        for worker in self.workers:
            worker.use(settings)

    def stop(self) -> None:
        with ThreadPoolExecutor(len(self.workers)) as threads:
            list(threads.map(lambda worker: worker.stop(), self.workers))


class RayWorker:
    """The near side: places an actor, sends it jobs, reads its events, replaces it when it is gone.

    A context manager: leaving it kills what has not been stopped.
    """

    def __init__(self, cluster: RayPool, settings: EngineSettings) -> None:
        self._cluster, self._settings = cluster, settings
        self._lock = threading.Lock()
        self._actor: Any = None
        self._placed: Any = None
        self._node = ""
        self._closed = False

    def start(self) -> None:
        """Ask the cluster for a place; the actor there starts its engine's imports."""
        with self._lock:
            if self._closed:
                raise EngineError("the run is over")
            if self._actor is None:
                each = self._cluster
                self._actor = each.actor.remote(each.bank, self._settings, each.places.threads)
                self._placed = self._actor.start.remote()

    def use(self, settings: EngineSettings) -> None:
        """Take other settings, from the next job on; it names them too."""
        self._settings = settings

    def ready(self) -> bool:
        """Whether the worker has a place; does not wait for one."""
        ray = self._cluster.ray
        self.start()
        placed, _ = ray.wait([self._placed], timeout=0)
        if not placed:
            return False
        try:
            self._node = ray.get(self._placed)
        except ray.exceptions.RayError as error:
            if getattr(error, "actor_init_failed", True) and not _for_memory(ray, error):
                raise EngineError(f"no worker starts on the Ray cluster: {error}") from error
            self.kill()  # its machine was lost meanwhile
            return False
        return True

    def run(self, job: Job) -> Iterator[Event]:
        """Events of `job`; the last says that it is done, stopped or failed."""
        ray, node = self._cluster.ray, self._node
        try:
            streaming = self._actor.run.options(num_returns="streaming")
            for event in streaming.remote(job, self._cluster.sign):
                yield ray.get(event)
        except ray.exceptions.RayTaskError as error:  # none of what the actor foresees
            yield CheckpointFailed(job.checkpoint, f"{job.checkpoint}: {error}", "engine")
        except (ray.exceptions.RayError, AttributeError) as error:
            if self._closed:
                raise EngineError("the run is over") from None
            message = f"{job.checkpoint}: its worker on {node} is gone ({_first_line(error)})"
            self.kill()
            memory = _for_memory(ray, error)
            yield CheckpointFailed(job.checkpoint, message, "lost", memory)

    def interrupt(self) -> None:
        """Ask it to leave its job after the block at hand. May be called from any thread."""
        with self._lock:
            if self._actor is not None:
                self._actor.interrupt.remote()

    def stop(self) -> None:
        """End the engine's process, which has no job, and the actor."""
        if self._node and self._actor is not None:
            ray = self._cluster.ray
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(self._actor.stop.remote(), timeout=20)
        self.kill()

    def kill(self) -> None:
        """End the actor, and with it the engine's process, whatever they are doing."""
        with self._lock:
            actor, self._actor, self._placed, self._node = self._actor, None, None, ""
        if actor is not None:
            self._cluster.ray.kill(actor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True  # a thread that still feeds it starts no other
        self.kill()


class Actor:
    """The far side: the engine's process of this machine. Its process ends with the actor's."""

    def __init__(self, bank: Path, settings: EngineSettings, threads: int) -> None:
        os.environ["OMP_NUM_THREADS"] = str(threads)  # Ray's own default is for GPUs one thread
        self._bank = bank
        self._process = WorkerProcess(bank, settings)
        self._interrupted = False

    def start(self) -> str:
        """Start the process; where that is."""
        self._process.start()
        return socket.gethostname()

    def run(self, job: Job, sign: Path) -> Iterator[Event]:
        for path in (sign, job.folder):
            if not _seen(path):
                yield self._unseen(job, path)
                return
        if self._interrupted:
            yield CheckpointStopped(job.checkpoint)
            return
        self._process.use(job.settings)
        yield from self._process.run(job)

    def interrupt(self) -> None:
        self._interrupted = True
        self._process.interrupt()

    def stop(self) -> None:
        self._process.stop()

    def _unseen(self, job: Job, path: Path) -> CheckpointFailed:
        what, shown = ("checkpoint", path) if path == job.folder else ("bank", self._bank)
        return CheckpointFailed(
            job.checkpoint,
            f"{socket.gethostname()} does not see the {what} {shown} of the machine that started"
            f" the run ({path.name} is not there); all machines of a Ray cluster need the bank, the"
            " checkpoints and the hub's cache (HF_HOME) on one file system",
            "fatal",
        )


def _seen(path: Path) -> bool:
    end = time.monotonic() + SEEN_S
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _for_memory(ray: Any, error: Exception) -> bool:
    """Whether Ray killed the worker because its machine ran short of memory."""
    # What Ray says of any other SIGKILL names memory too, among what it may have been.
    killed = isinstance(error, ray.exceptions.OutOfMemoryError)
    return killed or "running low on memory" in str(error)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
