"""Many calls at once, in threads."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def in_parallel(call: Callable[[U], T], values: Sequence[U], *, max_threads: int = 8) -> list[T]:
    """Results in order; an error or an interrupt cancels the calls that have not begun."""
    if min(len(values), max_threads) < 2:
        return [call(value) for value in values]
    pool = ThreadPoolExecutor(min(max_threads, len(values)))
    try:
        return list(pool.map(call, values))
    finally:
        pool.shutdown(cancel_futures=True)
