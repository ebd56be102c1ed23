"""Contexts as a prefix tree: each token of what queries have in common is kept once. Pure."""

import hashlib
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import polars as pl

from logitbank.errors import UsageError

CONTEXTS_SCHEMA = pl.Schema(
    {
        "depth": pl.Int32(),  # how many tokens stand before it in its contexts
        "token": pl.Int32(),
        "is_query": pl.Boolean(),  # whether a query is the context that ends here
    }
)
MOST_TOKENS = 2**30
"""Tokens of all sequences of a tree, beyond which it is refused: written out they are 8 GiB."""
_MOST_SHARED = 2**20

Asked = tuple[tuple[int, ...], int]
"""A sequence of tokens, and the position in it that ends a context."""


class ContextTree(NamedTuple):
    """Nodes in preorder, the children of each by ascending token.

    The same contexts make the same tree, whatever sequences they were asked in.
    """

    depth: np.ndarray
    """(n,) int32: how many nodes are above each."""
    token: np.ndarray
    """(n,) int32"""
    is_query: np.ndarray
    """(n,) bool: whether a query is the context that ends here; queries count in this order."""

    def digest(self, tokenizer: str) -> str:
        """SHA-256 (hex) of the tokenizer's digest, a zero byte, and the columns one after another.

        The first two are as little-endian 32-bit integers, the last has a byte a node.
        """
        content = hashlib.sha256(tokenizer.encode() + b"\0")
        for column, dtype in zip(self, ("<i4", "<i4", "u1"), strict=True):
            content.update(column.astype(dtype).tobytes())
        return content.hexdigest()

    def contexts(self) -> Iterator[Asked]:
        """By query, the first sequence of the tree that the context begins, and its end in it.

        Raises
        ------
        UsageError
            These are not the nodes of contexts in their order.
        """
        ends = self._ends()
        starts = [0, *ends[:-1]]
        if (total := int(self.depth[np.array(ends) - 1].astype(np.int64).sum())) > MOST_TOKENS:
            raise UsageError(f"its sequences have {total:,} tokens, more than {MOST_TOKENS:,}")
        # A token's number is one object, however often it is there, but for those of no vocabulary.
        vocab = int(self.token.max()) + 1
        numbers = np.arange(vocab).astype(object) if vocab <= _MOST_SHARED else None
        depths, queries = self.depth[starts].tolist(), np.flatnonzero(self.is_query).tolist()
        path: list[int] = []
        remaining = iter([*queries, len(self.token)])
        at = next(remaining)
        for start, end, depth in zip(starts, ends, depths, strict=True):
            if start and self.token[start] <= path[depth]:
                raise UsageError(f"node {start} is not above the one beside it")
            added = self.token[start:end]
            path[depth:] = (added if numbers is None else numbers[added]).tolist()
            ids = tuple(path)
            while at < end:
                yield ids, depth + at - start
                at = next(remaining)

    def _ends(self) -> list[int]:
        """Where each sequence ends: after a node that no other continues."""
        if not len(self.depth):
            raise UsageError("it has no node")
        following = np.append(self.depth[1:], 0)
        if self.depth[0] != 0 or self.depth.min() < 0 or (following > self.depth + 1).any():
            raise UsageError("a node stands deeper than the one before it goes on")
        is_end = following <= self.depth
        if (unasked := np.flatnonzero(is_end & ~self.is_query)).size:
            raise UsageError(f"nothing is asked at node {unasked[0]}, where a sequence ends")
        ends: list[int] = (np.flatnonzero(is_end) + 1).tolist()
        return ends

    def to_frame(self) -> pl.DataFrame:
        """A row a node, columns of `CONTEXTS_SCHEMA`."""
        return pl.DataFrame(dict(zip(CONTEXTS_SCHEMA, self, strict=True)), schema=CONTEXTS_SCHEMA)

    @classmethod
    def from_frame(cls, frame: pl.DataFrame) -> Self:
        """The tree that `to_frame` wrote.

        Raises
        ------
        UsageError
            A value is null, or a token below 0.
        """
        if sum(frame.null_count().row(0)) or (frame["token"] < 0).any():
            raise UsageError("a node lacks its depth, its token, or whether it is asked")
        return cls(*(frame[name].to_numpy() for name in CONTEXTS_SCHEMA))


def grown(asked: Sequence[Asked]) -> tuple[ContextTree, list[Asked], list[int]]:
    """The tree of some contexts, its contexts in order as `contexts` gives them, and each's number.

    Equal contexts share one. A sequence costs a node for each token that it adds.

    Raises
    ------
    UsageError
        Nothing is asked, a token is below 0 or beyond 31 bits, or a position is none.
    """
    if not asked:
        raise UsageError("a query set needs at least one query; this one is empty")
    sequences, own = _sequences(asked)
    order, keys = _sorted(sequences)
    tokens = np.frombuffer(b"".join(keys), ">i4").astype(np.int32)
    lengths = np.array([len(key) // 4 for key in keys])
    del keys
    starts = np.cumsum(lengths) - lengths
    shared = _shared_beginnings(tokens, starts, lengths)
    added = lengths - shared
    first = np.cumsum(added) - added  # number of the first node that each sequence adds
    # 1 from where a sequence begins to where it is new, 0 from there on.
    is_shared = np.zeros(len(tokens), np.int8)
    is_shared[starts] += 1
    is_shared[starts + shared] -= 1
    token = tokens[np.cumsum(is_shared, dtype=np.int8) == 0]
    del tokens, is_shared
    depth = np.arange(len(token), dtype=np.int32)
    depth -= np.repeat((first - shared).astype(np.int32), added)
    node_of = _nodes([(order[sequence], position) for sequence, position in own], first, shared)
    is_query = np.zeros(len(token), bool)
    is_query[node_of] = True
    tree = ContextTree(depth, token, is_query)
    nodes = np.flatnonzero(is_query)
    by_rank: list[tuple[int, ...]] = [()] * len(lengths)
    for ids, rank in zip(sequences, order, strict=True):
        by_rank[rank] = ids
    # A sequence that the next one continues gives way to it, from the last on.
    for rank in range(len(by_rank) - 2, -1, -1):
        if shared[rank + 1] == lengths[rank]:
            by_rank[rank] = by_rank[rank + 1]
    ranks = (np.searchsorted(first, nodes, "right") - 1).tolist()
    contexts = list(zip(map(by_rank.__getitem__, ranks), depth[nodes].tolist(), strict=True))
    return tree, contexts, np.searchsorted(nodes, node_of).tolist()


def _sequences(asked: Sequence[Asked]) -> tuple[list[tuple[int, ...]], list[tuple[int, int]]]:
    """Distinct sequences, each up to the last token asked, and (sequence, position) of each."""
    numbers: dict[tuple[int, ...], int] = {}
    last: list[int] = []
    own: list[tuple[int, int]] = []
    for ids, position in asked:
        if not 0 <= position < len(ids):
            raise UsageError(f"a query has position {position} of {len(ids)} tokens")
        number = numbers.setdefault(ids, len(last))
        if number == len(last):
            last.append(position)
        elif last[number] < position:
            last[number] = position
        own.append((number, position))
    return [ids[: end + 1] for ids, end in zip(numbers, last, strict=True)], own


def _sorted(sequences: Sequence[tuple[int, ...]]) -> tuple[list[int], list[bytes]]:
    """The place of each sequence among the distinct ones in order; and those, as bytes."""
    keys = [_sortable(ids) for ids in sequences]
    places, distinct = [0] * len(keys), list[bytes]()
    for number in sorted(range(len(keys)), key=keys.__getitem__):
        if not distinct or keys[number] != distinct[-1]:
            distinct.append(keys[number])
        places[number] = len(distinct) - 1
    return places, distinct


def _sortable(ids: tuple[int, ...]) -> bytes:
    """Bytes in the order of which sequences stand by their tokens, beginnings first."""
    try:
        tokens = array("i", ids)
    except (OverflowError, TypeError) as error:
        raise UsageError(f"a query has token ids that are none ({error})") from None
    if min(ids) < 0:
        raise UsageError(f"a query has the token id {min(ids)}; ids start at 0")
    if sys.byteorder == "little":
        tokens.byteswap()
    return tokens.tobytes()


def _shared_beginnings(tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """How many tokens each sequence has in common with the one before it; 0 for the first."""
    shared = np.zeros(len(starts), np.int64)
    most = np.minimum(lengths[:-1], lengths[1:])
    equal, depth = np.arange(1, len(starts)), 0
    while len(equal := equal[most[equal - 1] > depth]):
        equal = equal[tokens[starts[equal] + depth] == tokens[starts[equal - 1] + depth]]
        depth += 1
        shared[equal] = depth
    return shared


def _nodes(asked: Sequence[tuple[int, int]], first: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """The node of each (sequence, position)."""
    sequence, position = np.array(asked).T.copy()
    earlier = np.flatnonzero(position < shared[sequence])
    before = _last_that_shares_less(shared) if earlier.size else shared
    while earlier.size:
        # What a sequence shares was added by one before it: by none that shares as much.
        sequence[earlier] = before[sequence[earlier]]
        earlier = earlier[position[earlier] < shared[sequence[earlier]]]
    nodes: np.ndarray = first[sequence] + position - shared[sequence]
    return nodes


def _last_that_shares_less(shared: np.ndarray) -> np.ndarray:
    """For each sequence the last one before it that shares less; 0 for the first."""
    found, open_ones = [0] * len(shared), list[int]()
    values = shared.tolist()
    for i, value in enumerate(values):
        while open_ones and values[open_ones[-1]] >= value:
            open_ones.pop()
        found[i] = open_ones[-1] if open_ones else 0
        open_ones.append(i)
    return np.array(found)
