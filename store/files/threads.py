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


def ahead(values: Iterator[T]) -> Iterator[T]:
    """The same values; one is made in a thread while the one before it is used.

    >>> [*ahead(iter("abc"))]
    ['a', 'b', 'c']
    """
    with closing_pool(ThreadPoolExecutor(1)) as pool:
        following = pool.submit(_next, values)
        while made := following.result():
            following = pool.submit(_next, values)
            yield made[0]


def _next(values: Iterator[T]) -> tuple[T] | None:
    """The next value; none at the end."""
    for value in values:
        return (value,)
    return None


@contextmanager
def closing_pool(pool: ThreadPoolExecutor) -> Iterator[ThreadPoolExecutor]:
    """Wait for the calls that have begun, and cancel those that have not."""
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
