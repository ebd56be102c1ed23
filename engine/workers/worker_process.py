"""The parent's side of a worker: start it, send it jobs, read its events, notice its death."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import Pipe
from pathlib import Path
from typing import Self

from logitbank.engine.backends.precision import precision_environment
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.parallel import ALONE, Share
from logitbank.engine.weights.config_identity import ConfigFields, differing_fields
from logitbank.engine.workers.cgroup import MemoryKills, memory_kills
from logitbank.engine.workers.events import (
    CheckpointDone,
    CheckpointFailed,
    CheckpointStopped,
    Event,
    Note,
)
from logitbank.engine.workers.job import Job
from logitbank.errors import EngineError
from logitbank.wording import readable_bytes

LOG_TAIL_LINES = 12


class WorkerProcess:
    """A worker in a process of its own; started at the first job at the latest, and after a crash.

    A context manager: leaving it kills what has not been stopped. Its log is that of all workers
    (`log_path`), who never delete it.
    """

    def __init__(self, bank: Path, settings: EngineSettings, share: Share = ALONE) -> None:
        self._bank, self._settings, self._share = bank, settings, share
        self._log = log_path(bank)
        self._idle = True
        self._closed = self._interrupted = False
        self._config: ConfigFields = {}
        self._noted: set[tuple[str, ...]] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._kills: MemoryKills | None = None

    def start(self) -> None:
        """Start the process, which imports its engine and waits for a job."""
        # Without that folder there is no bank yet, and there may never be one.
        if self._process is None and self._log.parent.is_dir():
            self._start()

    def use(self, settings: EngineSettings) -> None:
        """Take other settings; a process that has imported another engine is replaced.

        So is one whose engine was opened with other settings, as for shorter sequences.
        """
        if settings.engine != self._settings.engine:
            self.kill()
        elif settings != self._settings and not self._idle:
            self.stop()
        self._settings = settings

    def ready(self) -> bool:
        return True

    def run(self, job: Job) -> Iterator[Event]:
        """Events of `job`, the last of them CheckpointDone or CheckpointFailed."""
        used = self._process is not None and not self._idle
        if used and (names := differing_fields(self._config, job.config)):
            self.stop()  # its engine holds another model
            yield from self._another(job, names)
            if self._interrupted:
                yield CheckpointStopped(job.checkpoint)
                return
        self._config = job.config
        if self._process is None:
            self._start()
        self._idle = False
        try:
            self._connection.send(job)
            while True:
                while not self._connection.poll(0.25):
                    pass  # a signal that another thread received is handled here, at last
                event = self._connection.recv()
                if isinstance(event, CheckpointFailed):
                    # An error of our own says all there is; what an engine says is in the log.
                    replaced = event.cause in ("load", "engine")
                    yield self._with_tail(event) if replaced else event
                    if replaced:
                        self.stop()  # only a new process is clean
                    return
                yield event
                if isinstance(event, CheckpointDone | CheckpointStopped):
                    return
        except (EOFError, OSError):  # also of an event that was cut in the middle
            process = self._process
            if process is None:  # killed on purpose, in another thread
                raise EngineError("the run is over") from None
            code = process.wait()
            self.stop()
            message = f"{job.checkpoint}: the engine's process {self._ended(code)}"
            event = CheckpointFailed(job.checkpoint, message, "crash", code == -signal.SIGKILL)
            event = self._with_tail(event)
            self._log_line(message)  # who is killed writes none
            yield event

    def _another(self, job: Job, names: tuple[str, ...]) -> Iterator[Note]:
        """Tell once of each set of fields why an engine is opened anew."""
        if names not in self._noted:
            self._noted.add(names)
            yield Note(
                f"{job.checkpoint}: config.json differs from that of the checkpoint before in"
                f" {', '.join(names)}, so it has an engine of its own"
            )

    def _ended(self, code: int) -> str:
        """How a process ended, and what to do where that was for memory."""
        if code >= 0:
            return f"ended with status {code}"
        how = f"was killed by signal {-code}"
        if code != -signal.SIGKILL:
            return how
        now = memory_kills()
        if self._kills is None or now is None or now.processes <= self._kills.processes:
            return f"{how} (out of memory?)"
        limit = "" if now.limit is None else f", of which {readable_bytes(now.limit)} are allowed"
        return (
            f"{how}, by the system, for lack of memory{limit}; ask the scheduler for more, or use "
            "fewer --workers"
        )

    def _log_line(self, message: str) -> None:
        with contextlib.suppress(OSError), self._log.open("a") as log:
            log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {message}\n")

    def interrupt(self) -> None:
        """Ask it to leave its job after the block at hand. May be called from any thread."""
        self._interrupted = True
        process = self._process  # its own thread may end it meanwhile
        if process is not None and not self._idle:
            process.terminate()

    def stop(self) -> None:
        """End the process: at once where it waits for a job, and the bank is whole in any case."""
        if self._process is None:
            return
        if self._idle:
            self.kill()  # it may be in the middle of its imports
            return
        with contextlib.suppress(OSError):
            self._connection.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End the process without waiting for what it is doing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True  # a thread that still feeds it starts no other
        self.kill()

    def _start(self) -> None:
        if self._closed:
            raise EngineError("the run is over")
        self._kills = memory_kills()
        self._connection, theirs = Pipe()
        descriptor = theirs.fileno()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "logitbank.engine.workers.serve",
                    str(descriptor),
                    str(self._bank),
                    str(self._log),
                ],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | worker_environment(self._settings) | self._share.environment(),
            )
            if cores := self._share.cores():
                os.sched_setaffinity(self._process.pid, cores)
        theirs.close()
        self._connection.send(self._settings)

    def _with_tail(self, event: CheckpointFailed) -> CheckpointFailed:
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
            return replace(event, log_tail=tuple(lines))
        return event


def log_path(bank: Path) -> Path:
    """Where the workers of a bank write what their engines say: `<bank>.log`, beside it."""
    where = bank.resolve()  # "." has no name
    return where.with_name(where.name + ".log")


@contextlib.contextmanager
def log_of_run(bank: Path, *, alone: bool) -> Iterator[Callable[[], None]]:
    """A run's use of the workers' log: calling what it gives says that they have been given work.

    At its end, a log that it has begun is removed where it is empty or tells only of engines that
    were imported for nothing. Not where other runs may write to it: it is theirs, too.
    """
    log = log_path(bank)
    begun, used = alone and not log.exists(), False

    def use() -> None:
        nonlocal used
        used = True

    try:
        yield use
    finally:
        if begun and log.exists() and not (used and log.stat().st_size):
            log.unlink(missing_ok=True)


def worker_environment(settings: EngineSettings) -> dict[str, str]:
    """What a worker needs set before it starts: nothing is asked of or sent to any network."""
    return {
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "0")
        if settings.trust_remote_code
        else "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # glibc keeps freed memory: the first touch of new pages costs more than what goes there.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(2**34),
        "MALLOC_ARENA_MAX": "1",
        "PYTHONUNBUFFERED": "1",
    } | precision_environment(settings.compute_dtype)
