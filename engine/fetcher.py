"""Bring checkpoints to local folders, the next one while the current one runs."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from logitbank.engine.hub import Hub
from logitbank.engine.suites import Checkpoint, HubSource, LocalSource


class Fetcher:
    """Fetches in the order asked, one at a time, in a thread of its own."""

    def __init__(
        self, checkpoints: Sequence[Checkpoint], hub: Hub | None, *, legacy_weights: bool
    ) -> None:
        self._checkpoints, self._hub, self._legacy = checkpoints, hub, legacy_weights
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fetch")
        self._futures: dict[int, Future[Path]] = {}

    def __enter__(self) -> "Fetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def start(self, index: int) -> None:
        if index not in self._futures:
            self._futures[index] = self._pool.submit(self._fetch, self._checkpoints[index])

    def folder(self, index: int) -> Path:
        """Local folder of a checkpoint; waits for it, and raises what its fetch raised."""
        self.start(index)
        return self._futures[index].result()

    def _fetch(self, checkpoint: Checkpoint) -> Path:
        match checkpoint.source:
            case LocalSource(path=path):
                return path
            case HubSource(repo=repo, revision=revision):
                self._hub = self._hub or Hub()
                return self._hub.fetch(repo, revision, legacy_weights=self._legacy)
