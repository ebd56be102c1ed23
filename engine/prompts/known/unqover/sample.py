"""Which instances of a question set too large to ask are asked. Pure, and sure to repeat itself."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
P = TypeVar("P")
C = TypeVar("C")


def seeded_order(items: Sequence[T], seed: int, *, key: Callable[[T], str]) -> list[T]:
    """Items in the order of SHA-256("<seed>:<key>")."""
    return sorted(items, key=lambda item: hashlib.sha256(f"{seed}:{key(item)}".encode()).digest())


def pairs_across(first: Sequence[T], second: Sequence[T]) -> list[tuple[T, T]]:
    """Every pair of one of each. In any run of as many as `first` has, each of those is once.

    >>> pairs_across("ab", "xyz")
    [('a', 'x'), ('b', 'y'), ('a', 'y'), ('b', 'z'), ('a', 'z'), ('b', 'x')]
    """
    return [
        (one, second[(at + shift) % len(second)])
        for shift in range(len(second))
        for at, one in enumerate(first)
    ]


def pairs_within(items: Sequence[T]) -> list[tuple[T, T]]:
    """Every unordered pair. Of n items, each is twice in every further n pairs.

    With an even n the last n/2 pairs have each item once.

    >>> pairs_within("abcd")
    [('a', 'b'), ('b', 'c'), ('c', 'd'), ('d', 'a'), ('a', 'c'), ('b', 'd')]
    """
    n = len(items)
    return [
        (items[at], items[(at + apart) % n])
        for apart in range(1, n // 2 + 1)
        for at in range(n if 2 * apart < n else n // 2)
    ]


def spread(pairs: Sequence[P], cells: Sequence[C], count: int) -> Iterator[tuple[P, C]]:
    """`count` distinct combinations: as many of each cell, give or take one; the pairs in turn."""
    if not count:
        return
    each, more = divmod(count, len(cells))
    at = 0
    for i, cell in enumerate(cells):
        for _ in range(each + (i < more)):
            yield pairs[at % len(pairs)], cell
            at += 1


def shares(sizes: Sequence[int], count: int) -> list[int]:
    """`count`, or all where there are not so many, in proportion to sizes.

    >>> shares([300, 100, 1], 100), shares([2, 1], 9)
    ([74, 25, 1], [2, 1])
    """
    counts: list[int] = []
    total, so_far = sum(sizes), 0
    for size in sizes:
        so_far += size
        counts.append(min(count, total) * so_far // total - sum(counts))
    return counts
