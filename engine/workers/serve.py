"""A worker process: `python -m logitbank.engine.workers.serve`; what it prints is logged."""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from logitbank.engine.backends.choose import import_engine, open_backend
from logitbank.engine.backends.hf.memory import is_out_of_memory
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.events import Cause, CheckpointFailed, CheckpointStopped, Event
from logitbank.engine.workers.job import Job
from logitbank.engine.workers.worker import Worker
from logitbank.errors import (
    CanaryError,
    DeviceError,
    DiskSpaceError,
    HeadError,
    LogitbankError,
    SuiteError,
)


def main(descriptor: int, bank: Path, log: Path) -> None:
    """Serve jobs from the pipe `descriptor` until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    stop = threading.Event()
    # A scheduler's SIGTERM reaches every process of a job, whatever that is at.
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    connection: Connection[Event, object] = Connection(descriptor)
    sending = threading.Lock()

    def emit(event: Event) -> None:  # the scoring and the writing thread both do
        with sending:
            connection.send(event)

    running: Job | None = None

    settings = connection.recv()
    assert isinstance(settings, EngineSettings)
    with contextlib.suppress(Exception):  # the first job meets it again, and reports it
        import_engine(settings)
    worker = Worker(bank, log=log, emit=emit, open_engine=open_backend)

    def leave(*_: object) -> None:
        """Stop after the block at hand, or at once: who loads weights has nothing to lose."""
        stop.set()
        at_hand = worker.stop()
        if running is None:
            return
        if at_hand:
            if not sending.locked():  # else what is being sent would be cut
                worker.leave()
            return
        worker.abandon()
        if sending.acquire(blocking=False):  # the interrupted thread may be the one that sends
            connection.send(CheckpointStopped(running.checkpoint))
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
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
        except LogitbankError as error:
            _log_exception()
            emit(failure(job, error))
        except Exception as error:  # an engine's own failure; the log has the traceback
            _log_exception()
            emit(engine_failure(job, error))
    worker.close()


def failure(job: Job, error: LogitbankError) -> CheckpointFailed:
    """What an error of our own means for the run."""
    cause: Cause = "checkpoint"
    if isinstance(error, DiskSpaceError | CanaryError | DeviceError | HeadError):
        cause = "fatal"
    elif isinstance(error, SuiteError):
        cause = "load"
    return CheckpointFailed(job.checkpoint, str(error), cause)


def engine_failure(job: Job, error: Exception) -> CheckpointFailed:
    """What an error that is not our own means for the run."""
    first = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {first[0]}" if first else type(error).__name__
    message = f"{job.checkpoint}: the engine failed on {job.folder}: {what}"
    if job.settings.engine == "vllm":
        message += "; --engine transformers runs what vLLM does not"
    return CheckpointFailed(job.checkpoint, message, "engine", is_out_of_memory(error))


def _end_with(parent: int) -> None:
    """End this process soon after its parent, however that ended and whatever is running here."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _log_exception() -> None:
    with contextlib.suppress(OSError):  # the disk that is full is often the log's too
        traceback.print_exc()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
    sys.stdout.flush()
    os._exit(0)  # vLLM's own exit handlers can hang for seconds
