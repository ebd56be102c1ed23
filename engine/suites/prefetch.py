"""Bring checkpoints to local folders, the next ones while the current one runs.

With a disk budget, downloads go to a folder of this run, and each is deleted when its checkpoint is
done. Files that were in the cache before are neither counted nor deleted.
"""

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

from logitbank.engine.suites.hub import Hub, HubSource
from logitbank.engine.suites.suites import Checkpoint, LocalSource
from logitbank.engine.weights.weights import weight_files
from logitbank.errors import EngineError, LogitbankError, UsageError
from logitbank.store.files.disk import existing
from logitbank.store.files.locks import is_current, try_lock
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


def download_bytes(
    path: Path, checkpoints: Sequence[Checkpoint], hub: Hub | None, *, disk_budget: int | None
) -> int:
    """Most bytes of downloads that a run will put on the disk that `path` is on."""
    if hub is None or existing(path).stat().st_dev != existing(hub.cache_dir).stat().st_dev:
        return 0
    missing = hub.missing_bytes(checkpoint.source for checkpoint in checkpoints)
    return missing if disk_budget is None else min(missing, disk_budget)


class DiskBudget:
    """A folder of this run beside the cache, and the downloads in it, which take at most `limit`.

    Checkpoints with equal files share one download. Not to be used by two threads at once.

    Raises
    ------
    UsageError
        A checkpoint is larger than the limit.
    """

    def __init__(self, checkpoints: Sequence[Checkpoint], hub: Hub, limit: int) -> None:
        self._limit, self._sizes, self._used = limit, dict[str, int](), dict[int, str]()
        self._names: dict[int, str] = {}
        needed = hub.needed_by_all(checkpoint.source for checkpoint in checkpoints)
        for index, checkpoint in enumerate(checkpoints):
            source = checkpoint.source
            if not isinstance(source, HubSource):
                continue
            files = needed.get(source, ())
            if not hub.missing(source, files):
                continue
            name = hashlib.sha256(repr(sorted(files)).encode()).hexdigest()[:16]
            self._names[index], self._sizes[name] = name, sum(file.size for file in files)
            if self._sizes[name] > limit:
                size = readable_bytes(self._sizes[name])
                raise UsageError(
                    f"the files of {checkpoint.id} take {size} and --disk-budget is"
                    f" {readable_bytes(limit)}; give at least {size}, or twice that to download the"
                    " next checkpoint while one runs"
                )
        self._root, self._lock = _locked_folder(hub.cache_dir / "logitbank")
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def fetch(self, index: int, fetch: Callable[..., Path]) -> Path:
        """Call `fetch` with the folder of a checkpoint that is not in the cache."""
        if (name := self._names.get(index)) is None:  # in the cache, or raises why not listed
            return fetch()
        with self._locks[name]:  # equal files may be on their way there
            return fetch(into=self._root / name)

    def take(self, index: int) -> bool:
        """Reserve the bytes of a checkpoint; False if the budget has less left."""
        if (name := self._names.get(index)) is not None:
            if sum(self._sizes[each] for each in {*self._used.values(), name}) > self._limit:
                return False
            self._used[index] = name
        return True

    def release(self, index: int) -> None:
        """Delete a download that no other checkpoint uses."""
        name = self._used.pop(index, None)
        if name is not None and name not in self._used.values():
            shutil.rmtree(self._root / name, ignore_errors=True)

    def close(self) -> None:
        """Delete everything that this run downloaded."""
        shutil.rmtree(self._root, ignore_errors=True)
        os.close(self._lock)


def _locked_folder(root: Path) -> tuple[Path, int]:
    """A new folder and the lock in it that ends with this process; those of dead ones are deleted.

    Of processes on this machine alone: not every file system locks across machines.
    """
    prefix = f"run-{socket.gethostname()}-"
    root.mkdir(parents=True, exist_ok=True)
    for left in root.glob(f"{prefix}*"):
        with suppress(OSError):  # another run deletes it
            if (lock := try_lock(left / "lock", create=True)) is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        with suppress(FileNotFoundError):  # another run took the new folder for a dead one's
            lock = try_lock(folder / "lock", create=True)
            if lock is not None and is_current(lock, folder / "lock"):
                return folder, lock


class Prefetcher:
    """Fetches checkpoints in order, and `ahead` of them before they are needed.

    Downloads take at most `disk_budget` bytes at a time. `on_bytes` is called with numbers of bytes
    as they come, in any thread. Threads are daemons, which ThreadPoolExecutor's are not: Ctrl-C
    need not wait for gigabytes.
    """

    def __init__(
        self,
        checkpoints: Sequence[Checkpoint],
        hub: Hub | None,
        *,
        ahead: int = 2,
        disk_budget: int | None = None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._checkpoints, self.hub, self._ahead = checkpoints, hub, ahead
        self._on_bytes = on_bytes
        self._budget: DiskBudget | None = None
        if hub is not None and disk_budget is not None:
            self._budget = DiskBudget(checkpoints, hub, disk_budget)
        self._order: list[int] = []
        """Checkpoints that are planned and not begun."""
        self._futures: dict[int, Future[Path]] = {}
        """Folders of those that are begun or waited for."""
        self._in_use: set[int] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._lock = threading.RLock()

    def __enter__(self) -> "Prefetcher":
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            for future in self._futures.values():
                future.cancel()
        if self._budget is not None:
            for thread in self._threads:
                thread.join(1.0)  # it may write into the folder that is deleted
            self._budget.close()

    def plan(self, order: Sequence[int]) -> None:
        """Set what is needed from now on, in order; everything else is done."""
        with self._lock:
            self._in_use.clear()
            self._order.clear()
            # A budget may have no room for the first until another download is deleted.
            kept = set(order if self._budget is None else order[:1])
            for index in self._futures.keys() - kept:
                self.done(index)
            self._order += [index for index in dict.fromkeys(order) if index not in self._futures]
            self._begin()

    def folder(
        self, index: int, *, on_wait: Callable[[str], None] = lambda _: None, after_s: float = 5.0
    ) -> Path:
        """Local folder of a checkpoint; waits for it, and raises what its download raised.

        After `after_s` seconds, `on_wait` is called once with a text. EngineError if it is closed.
        """
        with self._lock:
            if self._closed:
                raise EngineError(_CLOSED)
            self._in_use.add(index)
            if index not in self._futures:
                self._futures[index] = Future()
                self._order = [index, *(other for other in self._order if other != index)]
            future = self._futures[index]
            self._begin()
        try:
            with suppress(TimeoutError):
                future.exception(after_s)  # does not raise it, which may be a TimeoutError too
            if not future.done():
                on_wait(f"{self._checkpoints[index].id}: waiting for its download")
            return future.result()
        except CancelledError:
            raise EngineError(_CLOSED) from None

    def done(self, index: int) -> None:
        """Declare that a checkpoint is not needed any more; with a budget, it is deleted."""
        with self._lock:
            self._in_use.discard(index)
            future = self._futures.pop(index, None)
            if self._budget is not None and future is not None and future.done():
                self._budget.release(index)
            self._begin()

    def _begin(self) -> None:
        """Begin what there is room for; strictly in order, so that none starves."""
        while self._order and not self._closed:
            index = self._order[0]
            ahead = self._futures.keys() - self._in_use
            if index not in self._in_use and len(ahead) >= self._ahead:
                return
            if self._budget is not None and not self._budget.take(index):
                return
            future = self._futures.setdefault(self._order.pop(0), Future())
            thread = threading.Thread(target=self._bring, args=(index, future), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _bring(self, index: int, future: Future[Path]) -> None:
        folder, failure = None, None
        try:
            folder = self._fetch(index)
        except BaseException as error:  # raised where the folder is needed
            failure = error
        with self._lock:
            if future.cancelled():  # closed meanwhile
                return
            if folder is None:
                future.set_exception(failure)
            else:
                future.set_result(folder)
            if self._budget is not None and (folder is None or index not in self._futures):
                self._budget.release(index)  # it failed, or is not needed any more
                self._begin()
            ahead = index in self._futures and index not in self._in_use
        if ahead and folder is not None:
            self._read_weights(folder)

    def _fetch(self, index: int) -> Path:
        source = self._checkpoints[index].source
        if isinstance(source, LocalSource):
            return source.path
        assert self.hub is not None
        fetch = partial(self.hub.fetch, source, on_bytes=self._count)
        return fetch() if self._budget is None else self._budget.fetch(index, fetch)

    def _count(self, number: int) -> None:
        if self._closed:
            raise EngineError(_CLOSED)
        self._on_bytes(number)

    def _read_weights(self, folder: Path) -> None:
        """Read weights once, so that the system has them in memory, if they fit twice."""
        with suppress(LogitbankError, OSError):
            files = weight_files(folder)
            free_kb = re.search(r"MemAvailable: *(\d+)", Path("/proc/meminfo").read_text())
            if 2 * sum(path.stat().st_size for path in files) > 1024 * int(
                free_kb[1] if free_kb else 0
            ):
                return
            for path in files:
                with path.open("rb", buffering=0) as file:
                    while not self._closed and file.read(_READ_BYTES):
                        pass
