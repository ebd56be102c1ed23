"""Progress of work on a bank: a caller's callback, and the counter that calls it."""

import threading
from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with the bytes or rows that are done, and their total."""
Advance = Callable[[int], None]
"""Called with the bytes or rows that have just been done."""


def counting(total: int, progress: Progress | None) -> Advance:
    """A callback that reports the sum of its arguments to `progress`; threads may share it."""
    done, lock = 0, threading.Lock()

    def advance(size: int) -> None:
        nonlocal done
        with lock:
            done += size
            if progress is not None:
                progress(done, total)

    return advance
