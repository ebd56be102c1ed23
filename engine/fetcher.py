"""Bring checkpoints to local folders, the next one while the current one runs."""

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from logitbank.engine.hub import Hub
from logitbank.engine.suites import Checkpoint, HubSource, LocalSource


class Fetcher:
    """Fetches in the order asked, one at a time, in a thread of its own.

    The thread is a daemon, which ThreadPoolExecutor's are not: Ctrl-C need not wait for gigabytes.
    What was fetched of a file is kept and continued.
    """

    def __init__(
        self, checkpoints: Sequence[Checkpoint], hub: Hub | None, *, legacy_weights: bool
    ) -> None:
        self._checkpoints, self._hub, self._legacy = checkpoints, hub, legacy_weights
        self._futures: dict[int, Future[Path]] = {}
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        threading.Thread(target=self._loop, name="fetch", daemon=True).start()

    def __enter__(self) -> "Fetcher":
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._futures.values():
            future.cancel()
        self._queue.put(None)

    def start(self, index: int) -> None:
        if index not in self._futures:
            self._futures[index] = Future()
            self._queue.put(index)

    def folder(self, index: int) -> Path:
        """Local folder of a checkpoint; waits for it, and raises what its fetch raised."""
        self.start(index)
        return self._futures[index].result()

    def _loop(self) -> None:
        while (index := self._queue.get()) is not None:
            future = self._futures[index]
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._fetch(self._checkpoints[index]))
            except BaseException as error:  # raised where the folder is asked for
                future.set_exception(error)

    def _fetch(self, checkpoint: Checkpoint) -> Path:
        match checkpoint.source:
            case LocalSource(path=path):
                return path
            case HubSource(repo=repo, revision=revision):
                self._hub = self._hub or Hub()
                return self._hub.fetch(repo, revision, legacy_weights=self._legacy)
