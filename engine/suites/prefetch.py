"""Bring checkpoints to local folders, the next ones while the current one runs.

With a disk budget, downloads go to a folder of this run, and each is deleted when its checkpoint is
done. Files that were in the cache before are neither counted nor deleted.
"""

import os
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from logitbank.engine.suites.hub import Hub, HubSource
from logitbank.engine.suites.suites import Checkpoint, LocalSource
from logitbank.errors import EngineError, UsageError
from logitbank.store.files.disk import existing
from logitbank.store.files.locks import is_current, try_lock
from logitbank.wording import readable_bytes

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
        raise UsageError(f"Size {str(size)!r} is invalid: use for example 500MB, 100GB or 2TB.")
    return number


def download_bytes(
    path: Path, checkpoints: Sequence[Checkpoint], hub: Hub | None, *, disk_budget: int | None
) -> int:
    """Most bytes of downloads that a run will put on the disk of `path`."""
    if hub is None or existing(path).stat().st_dev != existing(hub.cache_dir).stat().st_dev:
        return 0
    missing = hub.missing_bytes(checkpoint.source for checkpoint in checkpoints)
    return missing if disk_budget is None else min(missing, disk_budget)


class DiskBudget:
    """A folder of this run beside the cache, whose downloads take at most `limit` bytes.

    One thread at a time may use it.

    Raises
    ------
    UsageError
        A checkpoint is larger than the limit.
    """

    def __init__(self, checkpoints: Sequence[Checkpoint], hub: Hub, limit: int) -> None:
        self._limit, self._used = limit, set[int]()
        self._sizes: dict[int, int] = {}
        """Bytes of checkpoints that are not in the cache."""
        needed = hub.needed_by_all(checkpoint.source for checkpoint in checkpoints)
        for index, checkpoint in enumerate(checkpoints):
            source = checkpoint.source
            files = needed.get(source, ()) if isinstance(source, HubSource) else ()
            if not (isinstance(source, HubSource) and hub.missing(source, files)):
                continue
            self._sizes[index] = sum(file.size for file in files)
            if self._sizes[index] > limit:
                size = readable_bytes(self._sizes[index])
                raise UsageError(
                    f"The files of {checkpoint.id} take {size}, more than the --disk-budget"
                    f" {readable_bytes(limit)}. Fix: use at least {size}, or twice that to download"
                    " the next checkpoint while one runs."
                )
        self._root, self._lock = _locked_folder(hub.cache_dir / "logitbank")

    def folder(self, index: int) -> Path | None:
        """The folder of a checkpoint's download, or None if it is in the cache."""
        return self._root / str(index) if index in self._sizes else None

    def reserve(self, index: int) -> bool:
        """Reserve the bytes of a checkpoint; False if too few are left."""
        if index in self._sizes:
            if sum(self._sizes[each] for each in {*self._used, index}) > self._limit:
                return False
            self._used.add(index)
        return True

    def release(self, index: int) -> None:
        """Delete the download of a checkpoint."""
        if index in self._used:
            self._used.remove(index)
            shutil.rmtree(self._root / str(index), ignore_errors=True)

    def close(self) -> None:
        """Delete everything that this run downloaded."""
        shutil.rmtree(self._root, ignore_errors=True)
        os.close(self._lock)


def _locked_folder(root: Path) -> tuple[Path, int]:
    """A new folder and the lock in it that ends with this process; deletes those of dead ones.

    Only those of processes on this machine: not every file system locks across machines.
    """
    prefix = f"run-{socket.gethostname()}-"
    root.mkdir(parents=True, exist_ok=True)
    for folder in root.glob(f"{prefix}*"):
        with suppress(OSError):  # another run deletes it
            if (lock := try_lock(folder / "lock", create=True)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        with suppress(FileNotFoundError):  # another run took the new folder for a dead one's
            lock = try_lock(folder / "lock", create=True)
            if lock is not None and is_current(lock, folder / "lock"):
                return folder, lock


class Prefetcher:
    """Fetches checkpoints in order, and `ahead` of them before they are needed.

    Downloads take at most `disk_budget` bytes at a time. `on_bytes` is called with numbers of
    downloaded bytes, in any thread. Threads are daemons, unlike those of ThreadPoolExecutor, so
    that Ctrl-C does not wait for gigabytes.
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
        """Checkpoints whose download has not started."""
        self._started: set[int] = set()
        """Checkpoints whose download has started and that are not done."""
        self._folders: dict[int, Path | BaseException] = {}
        """Folders of finished downloads, or their errors."""
        self._in_use: set[int] = set()
        self._closed = False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, name="prefetch", daemon=True)
            for _ in range(ahead + 1)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._budget is not None:
            for thread in self._threads:
                thread.join(1.0)  # it may write into the folder that is deleted
            self._budget.close()

    def plan(self, order: Sequence[int]) -> None:
        """Set the checkpoints that are needed from now on, in order; all others are done."""
        with self._changed:
            self._in_use.clear()
            # A budget may have no room for the first until another download is deleted.
            kept = set(order if self._budget is None else order[:1])
            for index in self._started - kept:
                self.done(index)
            self._order = [index for index in dict.fromkeys(order) if index not in self._started]
            self._changed.notify_all()

    def folder(
        self, index: int, *, on_wait: Callable[[str], None] = lambda _: None, after_s: float = 5.0
    ) -> Path:
        """Local folder of a checkpoint; waits for it, and raises the error of its download.

        After `after_s` seconds, `on_wait` is called once with a text. EngineError if it is closed.
        """

        def available() -> bool:
            # Another worker may declare a failed download done before this one has its error.
            if index not in self._in_use:
                self._in_use.add(index)
                if index not in self._started:
                    self._order = [index, *(other for other in self._order if other != index)]
                self._changed.notify_all()
            return self._closed or index in self._folders

        with self._changed:
            if not self._changed.wait_for(available, after_s):
                on_wait(f"{self._checkpoints[index].id}: waiting for its download")
                self._changed.wait_for(available)
            if self._closed:
                raise EngineError("The run is over.")
            folder = self._folders[index]
        if isinstance(folder, BaseException):
            raise folder
        return folder

    def fetched(self, index: int) -> Path | None:
        """Local folder of a checkpoint that is present; None if it is not yet, or failed."""
        with self._changed:
            folder = self._folders.get(index)
        return folder if isinstance(folder, Path) else None

    def done(self, index: int) -> None:
        """Declare that a checkpoint is no longer needed; with a budget, it is deleted."""
        with self._changed:
            self._in_use.discard(index)
            self._started.discard(index)
            if self._folders.pop(index, None) is not None:
                self._release(index)

    def _run(self) -> None:
        """Download one checkpoint after another. Several threads run this."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._can_start())
                if self._closed:
                    return
                index = self._order.pop(0)
                self._started.add(index)
            folder: Path | BaseException
            try:
                folder = self._fetch(index)
            except BaseException as error:  # raised where the folder is needed
                folder = error
            with self._changed:
                if index in self._started:
                    self._folders[index] = folder
                if index not in self._started or isinstance(folder, BaseException):
                    self._release(index)
                self._changed.notify_all()

    def _can_start(self) -> bool:
        """Whether the next download has room; strictly in order, so that none starves."""
        if not self._order:
            return False
        index = self._order[0]
        if index not in self._in_use and len(self._started - self._in_use) >= self._ahead:
            return False
        return self._budget is None or self._budget.reserve(index)

    def _release(self, index: int) -> None:
        if self._budget is not None:
            self._budget.release(index)
        self._changed.notify_all()

    def _fetch(self, index: int) -> Path:
        source = self._checkpoints[index].source
        if isinstance(source, LocalSource):
            return source.path
        assert self.hub is not None
        into = None if self._budget is None else self._budget.folder(index)
        return self.hub.fetch(source, into=into, on_bytes=self._count)

    def _count(self, number: int) -> None:
        if self._closed:
            raise EngineError("The run is over.")
        self._on_bytes(number)
