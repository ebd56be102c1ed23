"""Bring checkpoints to local folders, the next ones while the current one runs.

Downloads go on in threads of their own, and what will be run next is read into memory. Under a
disk budget, what is done makes room for what is to come.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from pathlib import Path

from logitbank.engine.gguf.numbers import numbers_of
from logitbank.engine.hub.hub import Hub
from logitbank.engine.hub.patience import tell_wait
from logitbank.engine.suites.budget import Room
from logitbank.engine.suites.suites import Checkpoint, HubSource, LocalSource
from logitbank.engine.weights.weights import GGUF, weight_files
from logitbank.errors import EngineError, LogitbankError

_READ_BYTES = 16 << 20
_CLOSED = "the run is over; nothing more is fetched for it"


class Fetcher:
    """Fetches what is asked for, and some of what will be.

    Its threads are daemons, which ThreadPoolExecutor's are not: Ctrl-C need not wait for gigabytes.
    What was fetched of a file is kept and continued.

    Parameters
    ----------
    checkpoints
        All that may be asked for, by index.
    hub
        The hub to ask, an attribute too; by default the one that the environment names.
    legacy_weights
        Accept `.bin` files.
    ahead
        Planned checkpoints to fetch before they are asked for.
    parallel
        Checkpoints to download at once.
    disk_budget
        Most bytes that weights downloaded here may take at a time. What was in the cache before is
        neither counted nor ever deleted.
    on_bytes
        Told of the bytes of weights as they come, in the threads that fetch.
    """

    def __init__(
        self,
        checkpoints: Sequence[Checkpoint],
        hub: Hub | None,
        *,
        legacy_weights: bool,
        ahead: int = 2,
        parallel: int = 2,
        disk_budget: int | None = None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._checkpoints, self.hub, self._legacy = checkpoints, hub, legacy_weights
        self._ahead, self._on_bytes = ahead, on_bytes
        self._room = None if disk_budget is None else Room(disk_budget)
        self._futures: dict[int, Future[Path]] = {}
        self._waiting: list[int] = []
        """Indices of futures that no thread has taken yet, in order."""
        self._order: tuple[int, ...] = ()
        self._in_use: set[int] = set()
        self._done: set[int] = set()
        self._read: set[int] = set()
        self._closed = False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._loop, name="fetch", daemon=True) for _ in range(parallel)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Fetcher":
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            for index in self._waiting:
                self._futures[index].cancel()
            if self._room is not None:
                self._room.close()
            self._changed.notify_all()

    def plan(self, order: Sequence[int]) -> None:
        """Say what will be asked for, in order; whatever else was fetched is done."""
        with self._changed:
            self._order = tuple(dict.fromkeys(order))
            self._in_use.clear()
            for index in set(self._futures) - set(order):
                self.done(index)
            self._changed.notify_all()

    def start(self, index: int) -> None:
        """Fetch a checkpoint soon."""
        with self._changed:
            self._start(index)

    def folder(
        self, index: int, *, on_wait: Callable[[str], None] = lambda _: None, after_s: float = 5.0
    ) -> Path:
        """Local folder of a checkpoint; waits for it, and raises what its fetch raised.

        `on_wait` is told once what is waited for, where that takes longer than `after_s`.

        Raises
        ------
        EngineError
            The fetcher was left, before or meanwhile, so that nobody would fetch it.
        """
        with self._changed:
            if self._closed:
                raise EngineError(_CLOSED)
            self._in_use.add(index)
            future = self._start(index)
        try:
            with suppress(TimeoutError):
                future.exception(after_s)  # does not raise it, which may be a TimeoutError too
            if not future.done():
                checkpoint = self._checkpoints[index]
                local = isinstance(checkpoint.source, LocalSource)
                on_wait(f"{checkpoint.id}: waiting for its {'numbers' if local else 'download'}")
            return future.result()
        except (CancelledError, InterruptedError):
            raise EngineError(_CLOSED) from None

    def done(self, index: int) -> None:
        """Say that a checkpoint is not needed any more; under a budget, it makes room."""
        with self._changed:
            self._done.add(index)
            self._in_use.discard(index)
            future = self._futures.get(index)
            if future is not None and future.done():
                del self._futures[index]
                if self._room is not None:
                    self._room.release(index)
            self._changed.notify_all()

    def _start(self, index: int) -> Future[Path]:
        if index not in self._futures:
            self._futures[index] = Future()
            self._waiting.append(index)
            self._done.discard(index)
        self._changed.notify_all()
        return self._futures[index]

    def _loop(self) -> None:
        while True:
            with self._changed:
                while (job := self._next()) is None and not self._closed:
                    self._changed.wait()
            if job is None:
                return
            job()
            with self._changed:
                self._changed.notify_all()

    def _next(self) -> Callable[[], None] | None:
        """What a thread should do now: what is asked for, then reading, then what will be."""
        if self._closed:
            return None
        index_in_use = next((i for i in self._waiting if i in self._in_use), None)
        if index_in_use is None and (job := self._next_reading()) is not None:
            return job
        index = next(iter(self._waiting), None) if index_in_use is None else index_in_use
        if index is None:
            index = self._next_ahead()
        if index is None:
            return None
        if self._room is not None and not self._room.knows(index):
            return self._room.look(index, partial(self._size, index))
        if self._room is not None and not self._has_room(index, self._room):
            return None
        self._start(index)
        self._waiting.remove(index)
        return partial(self._bring, index)

    def _next_ahead(self) -> int | None:
        if sum(index not in self._in_use for index in self._futures) >= self._ahead:
            return None
        known = self._futures.keys() | self._done
        return next((index for index in self._order if index not in known), None)

    def _next_reading(self) -> Callable[[], None] | None:
        """Read what comes next, once it is here, while something else runs."""
        index = next((i for i in self._order if i not in self._in_use | self._done), None)
        if index is None or index in self._read or not self._in_use:
            return None
        future = self._futures.get(index)
        if future is None or not future.done() or future.exception() is not None:
            return None
        self._read.add(index)
        return partial(self._read_weights, future.result())

    def _has_room(self, index: int, room: Room) -> bool:
        """Take the room that a checkpoint needs; what is asked for takes that of what is not."""
        while not room.take(index):
            if index not in self._in_use or (other := self._least_urgent()) is None:
                return False
            del self._futures[other]
            room.release(other)
        return True

    def _least_urgent(self) -> int | None:
        here = [i for i, f in self._futures.items() if f.done() and i not in self._in_use]
        rank = {index: position for position, index in enumerate(self._order)}
        return max(here, key=lambda index: rank.get(index, len(rank)), default=None)

    def _bring(self, index: int) -> None:
        future = self._futures[index]
        if not future.set_running_or_notify_cancel():
            return
        try:
            folder = self._fetch(self._checkpoints[index])
        except BaseException as error:  # raised where the folder is asked for
            self._fail(index, error)
            return
        with self._changed:
            if self._room is not None:
                self._room.snapshots[index] = folder
            future.set_result(folder)
            if index in self._done:
                self.done(index)

    def _fail(self, index: int, error: BaseException) -> None:
        with self._changed:
            if self._room is not None and not self._closed:
                self._room.release(index)
            self._futures[index].set_exception(error)

    def _fetch(self, checkpoint: Checkpoint) -> Path:
        match checkpoint.source:
            case LocalSource(path=path):
                return numbers_of(path, tell_wait) if path.suffix == GGUF else path
            case HubSource(repo=repo, revision=revision):
                return self._the_hub().fetch(
                    repo,
                    revision,
                    legacy_weights=self._legacy,
                    keep=self._room is None,
                    on_bytes=self._count,
                )

    def _count(self, number: int) -> None:
        if self._closed:
            raise InterruptedError("what is fetched is not needed any more")
        self._on_bytes(number)

    def _size(self, index: int) -> None:
        """Learn what a checkpoint takes, which may need a request."""
        assert self._room is not None
        source = self._checkpoints[index].source
        try:
            if isinstance(source, LocalSource) or self._the_hub().offline:
                self._room.learn(index, ())
            else:
                repo, revision = source.repo, source.revision
                blobs = self._the_hub().blobs(repo, revision, legacy_weights=self._legacy)
                self._room.learn(index, blobs, what=str(self._checkpoints[index].id))
        except BaseException as error:  # raised where the folder is asked for
            with self._changed:
                self._start(index)
                self._waiting.remove(index)
                self._room.forget(index)
                self._fail(index, error)

    def _the_hub(self) -> Hub:
        with self._changed:
            self.hub = self.hub or Hub()
            return self.hub

    def _read_weights(self, folder: Path) -> None:
        """Read weights once, so that the system has them in memory; only where there is plenty."""
        with suppress(LogitbankError, OSError):
            files = weight_files(folder, legacy_weights=self._legacy)
            if 2 * sum(file.stat().st_size for file in files) > available_bytes():
                return
            buffer = bytearray(_READ_BYTES)
            for path in files:
                with path.open("rb", buffering=0) as file:
                    while file.readinto(buffer) and not self._closed:
                        pass


def available_bytes() -> int:
    """Memory that could be used without paging; 0 where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(sizes[0]) if sizes else 0
