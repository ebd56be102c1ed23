"""Contexts: what a causal model's output at a position depends on, the tokens up to there."""

import hashlib
from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

from logitbank.store.format.schema import Query


class Branch(NamedTuple):
    """A context that no other one continues, and the queries that are answered on the way."""

    context: tuple[int, ...]
    queries: list[int]
    """Indices of those whose contexts are a beginning of this one, the shortest first."""


def branches(queries: Sequence[Query]) -> Iterator[Branch]:
    """The contexts that have to be run, in order; each query belongs to one of them.

    Examples
    --------
    >>> queries = [Query((5, 6, 7), 2), Query((5, 6, 8, 9), 1), Query((4,), 0)]
    >>> for branch in branches(queries):
    ...     print(branch.context, branch.queries)
    (4,) [2]
    (5, 6, 7) [1, 0]
    """
    # Queries of a document share one tuple, whose tokens are looked at once, not at each position.
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
    each = [ranks[id(query.ids)] for query in queries]
    order = sorted(range(len(queries)), key=each.__getitem__)
    found: list[int] = []
    # A beginning stands right before what continues it.
    for i, following in zip_longest(order, order[1:]):
        found.append(i)
        context = contexts[each[i]]
        if following is not None and each[following] == each[i]:
            continue
        if following is None or contexts[each[following]][: len(context)] != context:
            found.sort(key=lambda i: queries[i].position)
            yield Branch(context, found)
            found = []


def one_begins_another(leaves: Iterable[Branch], queries: Sequence[Query]) -> bool:
    """Whether running one of these leaves of `queries` answers more than what is asked at its end.

    Examples
    --------
    >>> begins = [Query((5, 6, 7), 2), Query((5, 6), 1)]
    >>> apart = [Query((5, 6, 7), 1), Query((5, 6, 8), 1), Query((5, 7), 1)]
    >>> [one_begins_another(branches(queries), queries) for queries in (begins, apart)]
    [True, False]
    """
    return any(
        queries[leaf.queries[0]].position < queries[leaf.queries[-1]].position for leaf in leaves
    )


def within(query: Query, switch: int) -> Query:
    """The query without what follows its context beyond `switch` tokens.

    A longrope model takes other factors for a sequence longer than that, so what follows a shorter
    context would change its logits.

    Examples
    --------
    >>> [within(Query((5, 6, 7, 8), position), 2).ids for position in (1, 2)]
    [(5, 6), (5, 6, 7, 8)]
    """
    if query.head != "next_token" or not query.position < switch < len(query.ids):
        return query
    return replace(query, ids=query.ids[:switch])


def shared_beginning(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences have in common at their beginning."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def context_keys(queries: Sequence[Query]) -> list[Hashable]:
    """Equal where two queries have the same answer: those of a causal model, by their contexts.

    A context is told by its digest, so that a long document costs a few bytes a position.

    Examples
    --------
    >>> first, second = context_keys([Query((5, 6, 7), 1), Query((5, 6, 8), 1)])
    >>> first == second
    True
    """
    keys: list[Hashable] = [*queries]
    asked: dict[tuple[int, ...], list[int]] = {}
    for i, query in enumerate(queries):
        if query.head == "next_token":
            asked.setdefault(query.ids, []).append(i)
    for ids, indices in asked.items():
        indices.sort(key=lambda i: queries[i].position)
        ends = [queries[i].position + 1 for i in indices]
        for i, end, digest in zip(indices, ends, beginnings(ids, ends), strict=True):
            keys[i] = (digest, queries[i].segments[:end], queries[i].language)
    return keys


def beginnings(ids: Sequence[int], ends: Iterable[int]) -> Iterator[bytes]:
    """A digest of `ids[:end]` for each of the ascending `ends`, each id read once."""
    text, running, start = memoryview(array("q", ids)).cast("B"), hashlib.blake2b(digest_size=16), 0
    for end in ends:
        running.update(text[8 * start : 8 * end])
        start = end
        yield running.digest()
