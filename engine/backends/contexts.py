"""Contexts: the tokens up to a position, on which a causal model's output there depends."""

import hashlib
from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from logitbank.store.format.schema import Query


class LeafContext(NamedTuple):
    """A context that no other context continues, and the queries that it answers."""

    context: tuple[int, ...]
    queries: list[int]
    """Indices of the queries whose contexts are prefixes of this one, the shortest first."""


def leaf_contexts(queries: Sequence[Query]) -> Iterator[LeafContext]:
    """The contexts that have to be run, sorted; each query belongs to one of them.

    Examples
    --------
    >>> queries = [Query((5, 6, 7), 2), Query((5, 6, 8, 9), 1), Query((4,), 0)]
    >>> for branch in leaf_contexts(queries):
    ...     print(branch.context, branch.queries)
    (4,) [2]
    (5, 6, 7) [1, 0]
    """
    # Queries of a document share one tuple, whose tokens are compared only once.
    sequences = {id(query.ids): query.ids for query in queries}
    last: dict[int, int] = {}
    for query in queries:
        last[id(query.ids)] = max(query.position, last.get(id(query.ids), 0))
    longest: dict[tuple[int, ...], int] = {}
    for key, ids in sequences.items():
        longest[ids] = max(last[key], longest.get(ids, 0))
    contexts = sorted({ids[: position + 1] for ids, position in longest.items()})
    rank_of = {context: rank for rank, context in enumerate(contexts)}
    ranks = {key: rank_of[ids[: longest[ids] + 1]] for key, ids in sequences.items()}
    query_ranks = [ranks[id(query.ids)] for query in queries]
    order = sorted(range(len(queries)), key=query_ranks.__getitem__)
    answered: list[int] = []
    # A prefix comes directly before the contexts that continue it.
    for i, following in zip_longest(order, order[1:]):
        answered.append(i)
        context = contexts[query_ranks[i]]
        if following is not None and query_ranks[following] == query_ranks[i]:
            continue
        if following is None or contexts[query_ranks[following]][: len(context)] != context:
            answered.sort(key=lambda i: queries[i].position)
            yield LeafContext(context, answered)
            answered = []


def shared_prefix_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of tokens in the common prefix of two sequences."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def context_keys(queries: Sequence[Query]) -> list[Hashable]:
    """Keys that are equal for queries with the same answer, such as equal contexts.

    Contexts are represented by digests, so that a long document takes a few bytes a position.

    Examples
    --------
    >>> first, second = context_keys([Query((5, 6, 7), 1), Query((5, 6, 8), 1)])
    >>> first == second
    True
    """
    keys: list[Hashable] = [*queries]
    by_sequence: dict[tuple[int, ...], list[int]] = {}
    for i, query in enumerate(queries):
        if query.head == "next_token":
            by_sequence.setdefault(query.ids, []).append(i)
    for ids, indices in by_sequence.items():
        indices.sort(key=lambda i: queries[i].position)
        ends = [queries[i].position + 1 for i in indices]
        for i, end, digest in zip(indices, ends, prefix_digests(ids, ends), strict=True):
            keys[i] = (digest, queries[i].segments[:end], queries[i].language)
    return keys


def prefix_digests(ids: Sequence[int], ends: Iterable[int]) -> Iterator[bytes]:
    """A digest of `ids[:end]` for each of the ascending `ends`; reads each id once."""
    text, running, start = memoryview(array("q", ids)).cast("B"), hashlib.blake2b(digest_size=16), 0
    for end in ends:
        running.update(text[8 * start : 8 * end])
        start = end
        yield running.digest()
