"""Many calls at once, in threads: whoever is done takes the next one."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def in_parallel(call: Callable[[U], T], values: Sequence[U], *, at_once: int = 8) -> list[T]:
    """Results in order; the first error, or an interrupt, ends what has not begun."""
    if min(len(values), at_once) < 2:
        return [call(value) for value in values]
    results: dict[int, T] = {}
    waiting, stop = iter(list(enumerate(values))), threading.Event()

    def work() -> None:
        for at, value in waiting:  # shared by all threads
            if stop.is_set():
                return
            try:
                results[at] = call(value)
            except BaseException:
                stop.set()
                raise

    with ThreadPoolExecutor(min(at_once, len(values))) as pool:
        working = [pool.submit(work) for _ in range(min(at_once, len(values)))]
        try:
            for one in working:
                one.result()
        except BaseException:
            stop.set()
            raise
    return [results[at] for at in range(len(values))]
