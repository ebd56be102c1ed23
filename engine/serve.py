"""A worker process: `python -m logitbank.engine.serve`. All that it prints goes to the log."""

import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from logitbank.engine.backend import EngineSettings
from logitbank.engine.events import CheckpointFailed, Event
from logitbank.engine.job import Job
from logitbank.engine.worker import Worker
from logitbank.errors import DiskSpaceError, LogitbankError, SuiteError


def main(descriptor: int, bank: Path, log: Path) -> None:
    """Serve jobs from the pipe `descriptor` until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    connection: Connection[Event, object] = Connection(descriptor)
    settings = connection.recv()
    assert isinstance(settings, EngineSettings)
    worker: Worker | None = None
    while True:
        try:
            job = connection.recv()
        except EOFError:
            break
        assert isinstance(job, Job)
        try:
            if worker is None:
                worker = Worker(bank, settings, log=log, emit=connection.send)
            worker.run(job)
        except LogitbankError as error:
            traceback.print_exc()
            # After a failed load the engine may hold half a model: only a new process is clean.
            connection.send(
                CheckpointFailed(
                    job.checkpoint,
                    str(error),
                    fatal=isinstance(error, DiskSpaceError),
                    restart=isinstance(error, SuiteError),
                )
            )
        except Exception as error:  # an engine's own failure; the log has the traceback
            traceback.print_exc()
            first = str(error).strip().splitlines()
            what = f"{type(error).__name__}: {first[0]}" if first else type(error).__name__
            connection.send(
                CheckpointFailed(job.checkpoint, f"{job.checkpoint}: {what}", restart=True)
            )
    if worker is not None:
        worker.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
    sys.stdout.flush()
    os._exit(0)  # vLLM's own exit handlers can hang for seconds
