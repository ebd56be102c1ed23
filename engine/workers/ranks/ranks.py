"""Rank 0's side: the processes of the others, and one engine that all of them are.

Ranks wait for each other inside the engine, in code that no exception reaches. So where one fails
or is gone, the worker's process ends too (`on_loss`), and with it all others: what a worker's death
means, who started it knows.
"""

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TypeVar

from logitbank.engine.backends.choose import open_backend
from logitbank.engine.backends.protocol import (
    Backend,
    EngineName,
    EngineSettings,
    Loaded,
    Sink,
    Tokens,
)
from logitbank.engine.backends.rank import Rank
from logitbank.engine.workers.ranks.requests import Done, Load, Loss, Open, Request, Score
from logitbank.store.format.schema import Json, Query

FOLLOWER = "logitbank.engine.workers.ranks.follower"
GRACE_S = 10.0
"""What rank 0 has to meet by itself the error that another one met; then it waits for ever."""
_NOTICE_S = 0.5
"""A rank's death is noticed in less, and by those that wait for it inside the engine at once."""

T = TypeVar("T")


class Ranks:
    """Processes that follow this one. They end with it, however it ends."""

    def __init__(self, settings: EngineSettings, on_loss: Callable[[Loss], None]) -> None:
        """Start them; each imports its engine and waits. `on_loss` should end this process.

        It is called in any thread.
        """
        self._count, self._on_loss = settings.tensor_parallel_size, on_loss
        meeting = Path(tempfile.mkdtemp(prefix="logitbank-ranks-"))
        ranks = [Rank(index, meeting) for index in range(self._count)]
        for rank in ranks:
            rank.place.symlink_to(meeting / "meeting")
        os.environ |= ranks[0].environment()
        self._meeting, self._closing = meeting, False
        self._followers = {rank.index: _Follower(rank, settings) for rank in ranks[1:]}
        self._replies: queue.SimpleQueue[Done | Loss] = queue.SimpleQueue()
        self._here = threading.Event()  # rank 0 is not inside its engine
        self._here.set()
        self._out_of_step = False
        self._losing = threading.Lock()
        threading.Thread(target=self._watch, name="ranks", daemon=True).start()

    def open(self, folder: Path, settings: EngineSettings) -> Backend:
        """Start the engine in all ranks."""
        own = self.together(Open(folder, settings), lambda: open_backend(folder, settings))
        return RanksBackend(own, self)

    def together(self, request: Request, own: Callable[[], T]) -> T:
        """What rank 0's own part gives, while the others do theirs."""
        if self._out_of_step:
            raise RuntimeError("the ranks of this engine are not in step any more")
        self._out_of_step = True  # until all have answered
        self._here.clear()
        try:
            for follower in self._followers.values():
                follower.connection.send(request)
            result = own()
        except Exception:
            time.sleep(_NOTICE_S)  # if it is for a rank that died, that is the error to be told
            raise
        finally:
            self._here.set()
        for _ in self._followers:
            reply = self._replies.get()
            if isinstance(reply, Loss):
                self._lose(reply)
                raise RuntimeError(reply.message)
        self._out_of_step = False
        return result

    def close(self) -> None:
        """End them; none of them has anything to lose."""
        self._closing = True
        for follower in self._followers.values():
            follower.process.kill()
            follower.process.wait()
        shutil.rmtree(self._meeting, ignore_errors=True)

    def _watch(self) -> None:
        """Take replies; a rank that is gone, or failed while rank 0 waits for it, ends all."""
        left = {follower.connection: index for index, follower in self._followers.items()}
        while left:
            for connection in wait([*left]):
                assert isinstance(connection, Connection)
                try:
                    reply = connection.recv()
                except (EOFError, OSError):
                    index = left.pop(connection)
                    if self._closing:
                        return
                    reply = self._death(index)
                    self._lose(reply)
                self._replies.put(reply)
                if isinstance(reply, Loss):
                    threading.Thread(target=self._wait_for_own, args=(reply,), daemon=True).start()

    def _wait_for_own(self, loss: Loss) -> None:
        if not self._here.wait(GRACE_S):
            self._lose(loss)

    def _lose(self, loss: Loss) -> None:
        with self._losing:  # the first is told; who comes later waits for the end
            if not self._closing:
                print(loss.message, file=sys.stderr, flush=True)
                shutil.rmtree(self._meeting, ignore_errors=True)
                self._on_loss(loss)

    def _death(self, index: int) -> Loss:
        code = self._followers[index].process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        memory = code == -9
        why = " (out of memory?)" if memory else ""
        message = f"the process of rank {index}, of {self._count} that hold the model, {how}{why}"
        return Loss(message, died=True, memory=memory)


class _Follower:
    """One of the processes, and the pipe to it."""

    def __init__(self, rank: Rank, settings: EngineSettings) -> None:
        self.connection, theirs = Pipe()
        descriptor = theirs.fileno()
        self.process = subprocess.Popen(
            [sys.executable, "-m", FOLLOWER, str(descriptor)],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=sys.stdout,
            stderr=sys.stderr,
            env=os.environ | rank.environment(),
        )
        theirs.close()
        self.connection.send(settings)


class RanksBackend:
    """The engine of all ranks, as one."""

    def __init__(self, own: Backend, ranks: Ranks) -> None:
        self._own, self._ranks = own, ranks
        self.name: EngineName = own.name

    def load(self, folder: Path, *, checkpoint: str) -> Loaded:
        return self._ranks.together(
            Load(folder, checkpoint), lambda: self._own.load(folder, checkpoint=checkpoint)
        )

    def score(self, queries: Sequence[Query], sink: Sink) -> Tokens:
        return self._ranks.together(Score(tuple(queries)), lambda: self._own.score(queries, sink))

    def describe(self) -> dict[str, Json]:
        return self._own.describe()

    def close(self) -> None:
        """End the other ranks. Rank 0's own would wait for them; it ends with this process."""
        self._ranks.close()
