"""A rank beside the worker's own: `python -m logitbank.engine.workers.ranks.follower`.

It does what rank 0 does, at the same time, and keeps nothing of it. What it prints is logged.
"""

import contextlib
import os
import queue
import shutil
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import NoReturn

from logitbank.engine.backends.choose import import_engine, open_backend
from logitbank.engine.backends.hf.memory import is_out_of_memory
from logitbank.engine.backends.protocol import Backend, EngineSettings
from logitbank.engine.backends.rank import Rank
from logitbank.engine.workers.ranks.requests import Done, Load, Loss, Open, Request, Score


def main(descriptor: int) -> NoReturn:
    """Do what comes through the pipe `descriptor`, until it closes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the worker's to handle: it ends this process
    rank = Rank.of()
    connection: Connection[Done | Loss, EngineSettings | Request] = Connection(descriptor)
    settings = connection.recv()
    assert isinstance(settings, EngineSettings)
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests, rank), daemon=True).start()
    with contextlib.suppress(Exception):  # the first request meets it again, and reports it
        import_engine(settings)
    backend: Backend | None = None
    while True:
        request = requests.get()
        try:
            backend = _carried_out(request, backend)
        except Exception as error:  # rank 0 decides what that means for the run
            traceback.print_exc()
            first = (str(error).strip().splitlines() or [""])[0]
            message = f"rank {rank.index}: {type(error).__name__}: {first}"
            connection.send(Loss(message, memory=is_out_of_memory(error)))
        else:
            connection.send(Done())


def _carried_out(request: Request, backend: Backend | None) -> Backend:
    """The engine, which a first request opens."""
    if isinstance(request, Open):
        return open_backend(request.folder, request.settings)
    assert backend is not None
    match request:
        case Load(folder, checkpoint):
            backend.load(folder, checkpoint=checkpoint)
        case Score(queries):
            backend.score(queries, _nowhere)
    return backend


def _nowhere(*_: object) -> None:
    """A sink: rank 0 has the same logits."""


def _receive(
    connection: "Connection[Done | Loss, EngineSettings | Request]",
    requests: "queue.SimpleQueue[Request]",
    rank: Rank,
) -> None:
    """Take requests, and end this process with the worker's, whatever is running here."""
    try:
        while True:
            request = connection.recv()
            assert not isinstance(request, EngineSettings)
            requests.put(request)
    finally:
        shutil.rmtree(rank.meeting, ignore_errors=True)  # who was killed could not
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
