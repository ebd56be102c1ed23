"""Write one block while the next is scored."""

import queue
import threading
from collections.abc import Callable

from logitbank.store import BlockData, DepositWriter


class BlockWriter:
    """A thread that takes blocks one ahead; what fails there surfaces at the next call here."""

    def __init__(self, writer: DepositWriter, written: Callable[[int, int], None]) -> None:
        self._writer = writer
        self._written = written
        self._queue: queue.Queue[tuple[int, BlockData] | None] = queue.Queue(maxsize=1)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name="block-writer", daemon=True)

    def __enter__(self) -> "BlockWriter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def put(self, block: int, data: BlockData) -> None:
        self._raise()
        self._queue.put((block, data))

    def drain(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._raise()

    def _loop(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._error is not None:
                continue  # keep taking, so that the scoring thread never blocks on a full queue
            block, data = item
            try:
                self._writer.write(block, data)
                self._written(block, 0 if data.logprobs is None else data.logprobs.nbytes)
            except BaseException as error:  # handed to the scoring thread
                self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
