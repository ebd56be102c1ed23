"""Contexts of a causal model as trees in rows, where every shared beginning stands once."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from logitbank.engine.backends.contexts import Branch, branches, shared_beginning
from logitbank.engine.backends.hf.shapes import Shape
from logitbank.store.format.schema import Query

POSITIONS = 256
"""Positions of a row that several contexts share. With 128 beginnings are run again more often;
with 512 each position is compared with more that it does not see."""
ON_A_CPU = 2048
"""Positions of rows that are run together on a CPU: what a layer makes of 4,096 leaves its cache,
and they take 6 to 10 % longer (70M shape)."""


class Pack(NamedTuple):
    """A row of a batch: trees of tokens, each of which sees the tokens before it in its context.

    `ids`, `depths` and `ends` are as long as the row. The depth of a token is its position in its
    context. What continues a token stands behind it without a gap; its end is the first place in
    the row that does not. So a place sees those before it whose end is behind it, and itself.
    """

    ids: list[int]
    depths: list[int]
    ends: list[int]
    asked: list[tuple[int, int]]
    """An index of a query, and the place in the row whose output it asks for."""


def rows(
    leaves: Iterable[Branch], positions: int = POSITIONS, *, most: int | None = None
) -> Iterator[list[tuple[Branch, int]]]:
    """Branches that share a row, each with the tokens that it shares with the one before it.

    A row has at most `positions` tokens, or twice those of its first branch: so a long beginning
    that many share stands in few rows. One longer than `most` is one branch. Branches come in
    order, so those that begin alike are neighbours.
    """
    row: list[tuple[Branch, int]] = []
    size, limit = 0, positions
    for leaf in leaves:
        length = len(leaf.context)
        shared = shared_beginning(row[-1][0].context, leaf.context) if row else 0
        if row and size + length - shared > limit:
            yield row
            row, size, shared = [], 0, 0
        if not row:
            limit = widest_row(length, positions, most=most)
        row.append((leaf, shared))
        size += length - shared
    if row:
        yield row


def widest_row(length: int, positions: int = POSITIONS, *, most: int | None = None) -> int:
    """Most tokens of a row whose first branch has so many, unless that alone has more."""
    limit = max(positions, 2 * length)
    return limit if most is None else min(limit, most)


def packs(
    queries: Sequence[Query], positions: int = POSITIONS, *, most: int | None = None
) -> Iterator[Pack]:
    """The trees of `rows`: each branch adds the tokens beyond what it shares with the one before.

    Examples
    --------
    >>> queries = [Query((5, 6, 7), 2), Query((5, 6, 8), 2), Query((5, 6, 7), 1)]
    >>> [pack] = packs(queries, 8)
    >>> pack.ids, pack.depths, pack.ends
    ([5, 6, 7, 8], [0, 1, 2, 2], [4, 4, 3, 4])
    >>> pack.asked
    [(2, 1), (0, 2), (1, 3)]
    """
    for row in rows(branches(queries), positions, most=most):
        pack = Pack([], [], [], [])
        path: list[int] = []
        for (context, indices), shared in row:
            for place in path[shared:]:
                pack.ends[place] = len(pack.ids)
            path[shared:] = range(len(pack.ids), len(pack.ids) + len(context) - shared)
            pack.ids.extend(context[shared:])
            pack.depths.extend(range(shared, len(context)))
            pack.ends.extend([0] * (len(context) - shared))
            pack.asked.extend((i, path[queries[i].position]) for i in indices)
        for place in path:
            pack.ends[place] = len(pack.ids)
        yield pack


def packed_batches(
    queries: Sequence[Query],
    max_tokens: int,
    max_outputs: int,
    *,
    together: int,
) -> Iterator[list[Pack]]:
    """Rows of about one length that are run together, at most `together` with their padding.

    A single row may be longer, and have `max_tokens`, or more if it is one context. Rows are as
    many as ask for `max_outputs`, as those take memory too.
    """
    batch: list[Pack] = []
    asked = 0
    rows = packs(queries, most=max_tokens)
    for pack in sorted(rows, key=lambda pack: len(pack.ids)):
        asked += len(pack.asked)
        shape = Shape(len(batch) + 1, len(pack.ids), asked)
        full = shape.rows * shape.width > together or asked > max_outputs
        if batch and full:
            yield batch
            batch, asked = [], len(pack.asked)
        batch.append(pack)
    if batch:
        yield batch
