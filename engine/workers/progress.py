"""How far a worker is: with its block, and told as rows, a few times a second."""

import math
import time
from collections.abc import Callable

from logitbank.engine.workers.events import Event, RowsScored
from logitbank.store.format.schema import CheckpointId


class BlockProgress:
    """When the block that is being scored will be done."""

    def __init__(self, rows: int) -> None:
        self._start, self._rows, self._scored = time.monotonic(), rows, 0

    def add(self, rows: int) -> None:
        self._scored += rows

    def ends(self) -> float:
        """When, at its rate so far; nobody knows before the first batch."""
        if self._scored >= self._rows:
            return 0.0
        now = time.monotonic()
        rest = (self._rows - self._scored) / self._scored if self._scored else math.inf
        return now + (now - self._start) * rest


class RowCounter:
    """Turns row counts into events, a few a second."""

    def __init__(self, emit: Callable[[Event], None], checkpoint: CheckpointId) -> None:
        self._emit, self._checkpoint = emit, checkpoint
        self._rows, self._tokens, self._last = 0, 0, time.monotonic()

    def add(self, rows: int, tokens: int) -> None:
        self._rows += rows
        self._tokens += tokens
        if time.monotonic() - self._last > 0.25:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._emit(RowsScored(self._checkpoint, self._rows, self._tokens))
        self._rows, self._tokens, self._last = 0, 0, time.monotonic()
