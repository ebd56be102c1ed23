"""Write blocks while others are scored."""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from logitbank.store import BlockData, DepositWriter, Layout
from logitbank.store.format.schema import Json

MOST_TOGETHER = 4
"""Blocks that are scored together at most: of full rows they take 200 MB, and are what a run that
is killed loses."""
_THREADS = 4
"""Writers on a machine with a GPU, at most. One compresses, hashes and writes a block of 50 MB in
about 0.1 s, half of it on several cores."""


class BlockWriter:
    """Threads that take blocks ahead; what fails there surfaces at the next call here.

    `written` is called in such a thread with each block that this writer has made durable, and
    `used` with the data of each block, also of one that another writer had committed.
    """

    def __init__(
        self,
        writer: DepositWriter,
        written: Callable[[int, BlockData], None],
        used: Callable[[BlockData], None] = lambda _: None,
        *,
        threads: int = 1,
    ) -> None:
        self._writer = writer
        self._written, self._used = written, used
        self._queue: queue.Queue[tuple[Sequence[int], Callable[[], Sequence[BlockData]]] | None]
        self._queue = queue.Queue(maxsize=1)
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._loop, name="block-writer", daemon=True)
            for _ in range(threads)
        ]

    def __enter__(self) -> "BlockWriter":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def put(self, blocks: Sequence[int], finish: Callable[[], Sequence[BlockData]]) -> None:
        """Have blocks written; a thread asks `finish` for their data, and keeps what it raises."""
        self._raise()
        self._queue.put((blocks, finish))

    def drain(self) -> None:
        self._end()
        self._raise()

    def _end(self) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _loop(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._error is not None:
                continue  # keep taking, so that the scoring thread never blocks on a full queue
            blocks, finish = item
            try:
                for block, data in zip(blocks, finish(), strict=True):
                    if self._writer.write(block, data):
                        self._written(block, data)
                    self._used(data)
            except BaseException as error:  # handed to the scoring thread
                self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


def runs(blocks: Sequence[int], most: int) -> Iterator[list[int]]:
    """Ascending blocks in groups of neighbours, at most so many together.

    Examples
    --------
    >>> [*runs([0, 1, 2, 5, 6], 2)]
    [[0, 1], [2], [5, 6]]
    """
    run: list[int] = []
    for block in blocks:
        if run and (block != run[-1] + 1 or len(run) == most):
            yield run
            run = []
        run.append(block)
    if run:
        yield run


def together(engine: Mapping[str, Json], layout: Layout) -> int:
    """How many blocks an engine scores together, by what it says of itself.

    On a CPU one, so that a stop loses little. On a GPU as many as two of its batches hold, so that
    no batch is cut short by the end of a block.

    Examples
    --------
    >>> from logitbank.store import Keep
    >>> layout = Layout(5000, 8, "float32", Keep("full"), block_rows=512)
    >>> together({"device": "cuda:0", "max_sequences": 512}, layout)
    2
    """
    if engine.get("device") == "cpu":
        return 1
    rows = 2 * int(str(engine.get("max_sequences") or 1))
    return max(1, min(MOST_TOGETHER, rows // layout.block_rows))


def writers(engine: Mapping[str, Json], cores: int) -> int:
    """How many threads write: on a CPU one, as the model takes its cores.

    Examples
    --------
    >>> [writers({"device": device}, 16) for device in ("cpu", "cuda")]
    [1, 4]
    """
    return 1 if engine.get("device") == "cpu" else max(1, min(_THREADS, (cores + 1) // 2))


class RowBuffers:
    """Arrays for the rows of a block, used again and again.

    The first touch of new memory costs more than what is written to it: 230 to 350 µs against 14
    for a row of 50,304 float16 values.
    """

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def take(self, layout: Layout) -> np.ndarray | None:
        """An array of the layout's dtype for a block's rows; None where only scores are kept.

        It is part of one that is a whole shard, with its padding, which is written as it is.
        """
        if layout.grid is None:
            return None
        shape, columns = layout.grid.shard_shape, layout.grid.columns
        while self._free:
            array = self._free.pop()
            if array.shape == shape and array.dtype == layout.grid.dtype:
                return array[:, :columns]
        return layout.grid.empty_shard()[:, :columns]

    def give_back(self, data: BlockData) -> None:
        """Take the array behind a block that nobody needs any more."""
        array = data.logprobs if data.hidden is None else data.hidden
        if array is not None:
            self._free.append(array if array.base is None else array.base)
