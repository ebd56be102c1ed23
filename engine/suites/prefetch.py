"""Bring checkpoints to local folders, the next ones while the current one runs.

Downloads run in threads of their own, and the weights that run next are read into memory. With a
disk budget, downloads go to a folder of this run, and each is deleted when its checkpoint is done.
"""

import fcntl
import hashlib
import os
import re
import shutil
import socket
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from pathlib import Path

from logitbank.engine.suites.hub import Hub
from logitbank.engine.suites.sources import Checkpoint, HubSource, LocalSource
from logitbank.engine.weights.weights import weight_files
from logitbank.errors import EngineError, LogitbankError, SuiteError, UsageError
from logitbank.wording import readable_bytes

_READ_BYTES = 16 << 20
_CLOSED = "the run is over; nothing more is fetched for it"
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_bytes(size: str | int) -> int:
    """A number of bytes, from a number or from text with B, KB, MB, GB or TB (powers of 1000).

    >>> parse_bytes("1.5 GB")
    1500000000

    Raises
    ------
    UsageError
        It is neither, or not above 0.
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?) ?([KMGT]?B)?", str(size).strip().upper())
    number = int(float(match[1]) * _UNITS[match[2] or "B"]) if match else 0
    if number <= 0:
        raise UsageError(f"size {str(size)!r} is unknown; write one such as 500MB, 100GB or 2TB")
    return number


class _DiskBudget:
    """A folder of this run in the cache, and the downloads in it that take part of the budget.

    Checkpoints with the same files share one download. Not to be used by two threads at once.
    """

    def __init__(self, checkpoints: Sequence[Checkpoint], hub: Hub, limit: int) -> None:
        names, sizes = dict[int, str](), dict[str, int]()
        hub.list_all(c.source for c in checkpoints if isinstance(c.source, HubSource))
        for index, checkpoint in enumerate(checkpoints):
            if not isinstance(source := checkpoint.source, HubSource):
                continue
            with suppress(SuiteError):  # raised when it is fetched
                if hub.missing(source):
                    files = sorted(hub.needed(source))
                    names[index] = hashlib.sha256(repr(files).encode()).hexdigest()[:16]
                    size = sizes[names[index]] = sum(file.size for file in files)
                    _check_size(checkpoint, size, limit)
        # Of this machine's runs alone: not every file system locks across machines.
        root, prefix = hub.cache_dir / "logitbank", f"run-{socket.gethostname()}-"
        root.mkdir(parents=True, exist_ok=True)
        for left in root.glob(f"{prefix}*/"):
            _remove_unlocked(left)
        handle, lock = tempfile.mkstemp(".lock", prefix, root)
        self._lock, self._root = os.fdopen(handle), Path(lock).with_suffix("")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._root.mkdir()  # whoever sees the folder finds it locked
        self._limit = limit
        self.folders = {index: self._root / name for index, name in names.items()}
        """Where each checkpoint is downloaded to that is not in the cache."""
        self._sizes = {self._root / name: size for name, size in sizes.items()}
        self._users: dict[Path, set[int]] = {}
        self.locks: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)

    def take(self, index: int) -> bool:
        """Reserve what a checkpoint needs; False if that is more than the budget has left."""
        if (folder := self.folders.get(index)) is None:
            return True
        taken = sum(self._sizes[other] for other in self._users)
        if folder not in self._users and taken + self._sizes[folder] > self._limit:
            return False
        self._users.setdefault(folder, set()).add(index)
        return True

    def release(self, index: int) -> None:
        """Delete what only this checkpoint used."""
        folder = self.folders.get(index)
        if folder is not None and (users := self._users.get(folder)) is not None:
            users.discard(index)
            if not users:
                del self._users[folder]
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        self._lock.close()
        _remove_unlocked(self._root)


def _check_size(checkpoint: Checkpoint, size: int, limit: int) -> None:
    if size > limit:
        raise UsageError(
            f"the files of {checkpoint.id} take {readable_bytes(size)} and --disk-budget is "
            f"{readable_bytes(limit)}; give at least {readable_bytes(size)}, or twice that to "
            "download the next checkpoint while one runs"
        )


def _remove_unlocked(folder: Path) -> None:
    """Delete the folder of a run that is over: its lock is free."""
    lock = folder.with_name(f"{folder.name}.lock")
    with lock.open("a") as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
        lock.unlink(missing_ok=True)


class Prefetcher:
    """Fetches the checkpoint that is needed now, and some that are needed next.

    Its threads are daemons, which ThreadPoolExecutor's are not: Ctrl-C need not wait for gigabytes.

    Parameters
    ----------
    checkpoints
        All that may be needed, by index.
    hub
        The hub of those that are not local folders.
    ahead
        Checkpoints to fetch before they are needed.
    parallel
        Checkpoints to download at once.
    disk_budget
        Most bytes that downloads may take at a time. What was in the cache before is neither
        counted nor ever deleted.

    Raises
    ------
    UsageError
        A checkpoint is larger than the budget.
    """

    def __init__(
        self,
        checkpoints: Sequence[Checkpoint],
        hub: Hub | None,
        *,
        ahead: int = 2,
        parallel: int = 2,
        disk_budget: int | None = None,
    ) -> None:
        self._checkpoints, self.hub = checkpoints, hub
        self._ahead = ahead
        self._budget: _DiskBudget | None = None
        if hub is not None and disk_budget is not None:
            self._budget = _DiskBudget(checkpoints, hub, disk_budget)
        self._futures: dict[int, Future[Path]] = {}
        self._order: list[int] = []
        """What is to be fetched and not begun."""
        self._in_use: set[int] = set()
        self._closed = False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._loop, name="fetch", daemon=True) for _ in range(parallel)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Prefetcher":
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            for future in self._futures.values():
                future.cancel()
            self._changed.notify_all()
        if self._budget is not None:
            for thread in self._threads:
                thread.join(1.0)  # it may write into the folder that is deleted
            self._budget.close()

    def plan(self, order: Sequence[int]) -> None:
        """Set what is needed, in order; everything else is done."""
        with self._changed:
            self._in_use.clear()
            for index in set(self._futures) - set(order):
                self.done(index)
            begun = self._futures.keys() - set(self._order)
            self._order = [index for index in dict.fromkeys(order) if index not in begun]
            self._changed.notify_all()

    def folder(
        self, index: int, *, on_wait: Callable[[str], None] = lambda _: None, after_s: float = 5.0
    ) -> Path:
        """Local folder of a checkpoint; waits for it, and raises what its download raised.

        If that takes longer than `after_s`, `on_wait` is called once with a text.

        Raises
        ------
        EngineError
            The prefetcher was closed, before or meanwhile.
        """
        with self._changed:
            if self._closed:
                raise EngineError(_CLOSED)
            self._in_use.add(index)
            if index not in self._futures:
                self._futures[index] = Future()
                self._order = [index, *(other for other in self._order if other != index)]
            future = self._futures[index]
            self._changed.notify_all()
        try:
            with suppress(TimeoutError):
                future.exception(after_s)  # does not raise it, which may be a TimeoutError too
            if not future.done():
                on_wait(f"{self._checkpoints[index].id}: waiting for its download")
            return future.result()
        except (CancelledError, _ClosedError):
            raise EngineError(_CLOSED) from None

    def done(self, index: int) -> None:
        """Declare that a checkpoint is not needed any more; with a budget, it is deleted."""
        with self._changed:
            self._in_use.discard(index)
            future = self._futures.pop(index, None)
            if self._budget is not None and future is not None and future.done():
                self._budget.release(index)
            self._changed.notify_all()

    def _loop(self) -> None:
        while True:
            with self._changed:
                while (index := self._next()) is None and not self._closed:
                    self._changed.wait()
                if index is None or self._closed:
                    return
                self._order.remove(index)
                future = self._futures.setdefault(index, Future())
            if future.set_running_or_notify_cancel():
                self._bring(index, future)

    def _next(self) -> int | None:
        """What a thread should fetch now, if anything; strictly in order, so that none starves."""
        if not self._order:
            return None
        index = self._order[0]
        ready = [other for other in self._futures if other not in self._in_use]
        if index not in self._in_use and len(ready) >= self._ahead:
            return None
        while self._budget is not None and not self._budget.take(index):
            idle = [other for other in ready if self._futures[other].done()]
            if index not in self._in_use or not idle:
                return None
            self.done(idle[-1])  # what is needed takes the room of what is not
            ready.remove(idle[-1])
        return index

    def _bring(self, index: int, future: Future[Path]) -> None:
        folder, failure = None, None
        try:
            folder = self._fetch(index)
        except BaseException as error:  # raised where the folder is needed
            failure = error
        with self._changed:
            if folder is None:
                future.set_exception(failure)
            else:
                future.set_result(folder)
            if self._budget is not None and (folder is None or index not in self._futures):
                self._budget.release(index)  # it failed, or was done before it came
            ahead = index in self._futures and index not in self._in_use
            self._changed.notify_all()
        if ahead and folder is not None:
            self._read_weights(folder)

    def _fetch(self, index: int) -> Path:
        source = self._checkpoints[index].source
        if isinstance(source, LocalSource):
            return source.path
        assert self.hub is not None
        fetch = partial(self.hub.fetch, source, on_bytes=self._stop_if_closed)
        if self._budget is None or (into := self._budget.folders.get(index)) is None:
            return fetch()
        with self._budget.locks[into]:  # an equal checkpoint may be on its way there
            return fetch(into=into)

    def _stop_if_closed(self, _: int) -> None:
        if self._closed:
            raise _ClosedError

    def _read_weights(self, folder: Path) -> None:
        """Read weights once, so that the system has them in memory; only where there is plenty."""
        with suppress(LogitbankError, OSError):
            files = weight_files(folder)
            if 2 * sum(file.stat().st_size for file in files) > available_bytes():
                return
            buffer = bytearray(_READ_BYTES)
            for path in files:
                with path.open("rb", buffering=0) as file:
                    while file.readinto(buffer) and not self._closed:
                        pass


class _ClosedError(Exception):
    """Nobody waits for a download any more."""


def available_bytes() -> int:
    """Memory that could be used without paging; 0 where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(sizes[0]) if sizes else 0
