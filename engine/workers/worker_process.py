"""The parent's side of a worker: start its process, send jobs, read events, notice its death."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import Pipe
from pathlib import Path
from typing import Self

from logitbank.engine.backends.engine import engine_named
from logitbank.engine.backends.protocol import EngineSettings, EngineStart
from logitbank.engine.plan.parallel import ALONE, MachinePart
from logitbank.engine.weights.config_identity import ConfigFields, differing_fields
from logitbank.engine.workers.events import (
    Cause,
    CheckpointFailed,
    CheckpointStopped,
    Event,
    Job,
    Note,
    Outcome,
)
from logitbank.errors import EngineError

LOG_TAIL_LINES = 12
_NOT_CLEAN: tuple[Cause, ...] = ("load", "engine", "crash")
"""Failures after which the engine cannot be used again."""
MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
    "MALLOC_ARENA_MAX": "1",
}
"""Variables with which glibc keeps freed memory of a worker: the first touch of new pages costs
more than writing to them."""


class WorkerProcess:
    """A worker in its own process, which starts at the first job at the latest.

    A context manager: leaving it kills a process that has not stopped. All workers of a bank write
    to one log (`log_path`).
    """

    def __init__(self, bank: Path, engine: EngineStart, share: MachinePart = ALONE) -> None:
        self._bank, self._engine, self._share = bank, engine, share
        self._log = log_path(bank)
        self._closed = self._interrupted = False
        self._process: subprocess.Popen[bytes] | None = None
        self._used = False
        """Whether the process has had a job."""
        self._settings: EngineSettings | None = None
        """Those of the last job."""
        self._config: ConfigFields = {}
        self._model = ""

    def start(self) -> None:
        """Start the process, which imports its engine and waits for a job."""
        # Without this folder there is no bank yet.
        if self._process is None and self._log.parent.is_dir():
            self._start()

    def ready(self) -> bool:
        return True

    def run(self, job: Job) -> Iterator[Event]:
        """Events of `job`; the last one is its Outcome."""
        start = job.settings.start
        if job.settings != self._settings if self._used else start != self._engine:
            self.stop()  # its engine was imported or opened with other settings
        self._settings, self._engine = job.settings, start
        names = differing_fields(self._config, job.config)
        if self._process is not None and self._used and names:
            self.stop()
            if job.checkpoint.model == self._model:  # another model has another config
                yield Note(
                    f"{job.checkpoint}: config.json differs from that of the checkpoint before in"
                    f" {', '.join(names)}, so a new engine is started"
                )
        if self._interrupted:  # maybe while the process was stopped
            yield CheckpointStopped(job.checkpoint)
            return
        self._config, self._model = job.config, job.checkpoint.model
        if self._process is None:
            self._start()
        self._used = True
        try:
            self._connection.send(job)
            while True:
                while not self._connection.poll(0.25):
                    pass  # a signal that another thread received is handled here
                event = self._connection.recv()
                if isinstance(event, CheckpointFailed) and event.cause in _NOT_CLEAN:
                    self.stop()  # only a new process is clean
                    event = self._with_log_tail(event)
                yield event
                if isinstance(event, Outcome):
                    return
        except (EOFError, OSError):  # also if an event was cut in the middle
            process = self._process
            if process is None:  # another thread has killed it
                raise EngineError("The run is over.") from None
            code = process.wait()
            self.stop()
            message = f"{job.checkpoint}: the engine's process {_ending(code)}"
            event = CheckpointFailed(job.checkpoint, message, "crash", code == -signal.SIGKILL)
            event = self._with_log_tail(event)
            with contextlib.suppress(OSError), self._log.open("a") as log:
                log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {message}\n")
            yield event

    def interrupt(self) -> None:
        """Request that the job stops after its current block. Any thread may call this."""
        self._interrupted = True
        process = self._process  # its own thread may end it meanwhile
        if process is not None and self._used:
            process.terminate()

    def stop(self) -> None:
        """End the process: an unused one at once, another one when it has closed its engine."""
        if self._process is None:
            return
        if not self._used:
            self.kill()  # it may be importing
            return
        with contextlib.suppress(OSError):
            self._connection.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True  # a thread that still uses it starts no other process
        self.kill()

    def _start(self) -> None:
        if self._closed:
            raise EngineError("The run is over.")
        self._connection, child = Pipe()
        descriptor = child.fileno()
        module = "logitbank.engine.workers.serve"
        arguments = [str(descriptor), str(self._bank), str(self._log)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | worker_environment(self._engine) | self._share.environment(),
            )
        if cores := self._share.cores():
            os.sched_setaffinity(self._process.pid, cores)
        child.close()
        self._used = False
        self._connection.send(self._engine)

    def _with_log_tail(self, event: CheckpointFailed) -> CheckpointFailed:
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
            return replace(event, log_tail=tuple(lines))
        return event


def _ending(code: int) -> str:
    """How a process ended, and what to do after a probable lack of memory."""
    if code >= 0:
        return f"ended with status {code}"
    if code != -signal.SIGKILL:
        return f"was killed by signal {-code}"
    return (
        "was killed by signal 9 (out of memory?); request more memory from the scheduler, or use"
        " fewer --workers"
    )


def log_path(bank: Path) -> Path:
    """The log of a bank's workers and their engines: `<bank>.log`, in the same folder."""
    path = bank.resolve()  # "." has no name
    return path.with_name(path.name + ".log")


def worker_environment(engine: EngineStart) -> dict[str, str]:
    """Environment variables of a worker process; it uses no network."""
    remote_code_offline = os.environ.get("HF_HUB_OFFLINE", "0")
    return {
        "HF_HUB_OFFLINE": remote_code_offline if engine.trust_remote_code else "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        # Threads that spin while they wait for each other take the cores of a busy machine.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive"),
        **MALLOC,
        **engine_named(engine.engine).environment(engine),
    }
