"""A worker process: `python -m logitbank.engine.workers.serve`; its output goes to the log."""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from logitbank.engine.backends.choose import import_engine
from logitbank.engine.backends.engine import engine_named
from logitbank.engine.backends.out_of_memory import is_out_of_memory
from logitbank.engine.backends.protocol import EngineStart
from logitbank.engine.workers.events import Cause, CheckpointFailed, CheckpointStopped, Event, Job
from logitbank.engine.workers.load_ahead import LoadedAheadError
from logitbank.engine.workers.reference_check import ReferenceFork
from logitbank.engine.workers.worker import Worker
from logitbank.errors import (
    DeviceError,
    DiskSpaceError,
    HeadError,
    LogitbankError,
    ReferenceCheckError,
    SuiteError,
)


def main(descriptor: int, bank: Path, log: Path) -> None:
    """Run jobs from the pipe `descriptor` until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    stop = threading.Event()
    # A scheduler sends SIGTERM to every process of a job, also to one that imports.
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    connection: Connection[Event, object] = Connection(descriptor)
    parent = os.getppid()
    fork = ReferenceFork.start(connection)  # before there are threads, CUDA or vLLM
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    sending = threading.Lock()

    def emit(event: Event) -> None:  # called by the scoring and the writing thread
        with sending:
            connection.send(event)

    running: Job | None = None
    engine = connection.recv()
    assert isinstance(engine, EngineStart)
    with contextlib.suppress(Exception):  # raised again by the first job, which reports it
        import_engine(engine)
    worker = Worker(bank, log=log, emit=emit, fork=fork)

    def on_sigterm(*_: object) -> None:
        """Stop after the current block, or at once: a process that loads weights loses nothing."""
        stop.set()
        if worker.stop() or running is None:
            return
        worker.kill_reference()
        if sending.acquire(blocking=False):  # the interrupted thread may be sending
            connection.send(CheckpointStopped(running.checkpoint))
        os._exit(0)

    signal.signal(signal.SIGTERM, on_sigterm)
    while True:
        running = None
        try:
            job = connection.recv()
        except EOFError:
            break
        assert isinstance(job, Job)
        running = job
        if stop.is_set():
            emit(CheckpointStopped(job.checkpoint))
            continue
        try:
            worker.run(job)
        except Exception as error:
            with contextlib.suppress(OSError):  # a full disk is often also that of the log
                traceback.print_exc()
            emit(failure(job, error))
    worker.close()
    if fork is not None:
        fork.end()


def failure(job: Job, error: Exception) -> CheckpointFailed:
    """The outcome of a job that raised an error."""
    if isinstance(error, LoadedAheadError):  # the job itself has not begun
        message = f"{job.checkpoint}: {error}"
        return CheckpointFailed(job.checkpoint, message, "crash", is_out_of_memory(error))
    if not isinstance(error, LogitbankError) or is_out_of_memory(error):
        return _engine_failure(job, error)
    cause: Cause = "checkpoint"
    if isinstance(error, DiskSpaceError | ReferenceCheckError | DeviceError | HeadError):
        cause = "fatal"
    elif isinstance(error, SuiteError):
        cause = "load"
    return CheckpointFailed(job.checkpoint, str(error), cause)


def _engine_failure(job: Job, error: Exception) -> CheckpointFailed:
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    message = f"{job.checkpoint}: the engine failed on {job.folder}: {text}"
    if advice := engine_named(job.settings.engine).advice:
        message += f"; try {advice}"
    return CheckpointFailed(job.checkpoint, message, "engine", is_out_of_memory(error))


def _end_with_parent(parent: int) -> None:
    """End this process soon after its parent, whatever it is doing."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
    sys.stdout.flush()
    os._exit(0)  # vLLM's exit handlers can hang for seconds
