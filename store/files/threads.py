"""Many calls at once, in threads."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def in_parallel(call: Callable[[U], T], values: Sequence[U], *, max_threads: int = 8) -> list[T]:
    """Results in order; an error or an interrupt cancels the calls that have not begun."""
    if min(len(values), max_threads) < 2:
        return [call(value) for value in values]
    pool = ThreadPoolExecutor(min(max_threads, len(values)))
    with closing_pool(pool):
        return list(pool.map(call, values))


@contextmanager
def closing_pool(pool: ThreadPoolExecutor) -> Iterator[None]:
    """Wait for the calls that have begun, and cancel those that have not."""
    try:
        yield
    finally:
        pool.shutdown(cancel_futures=True)
