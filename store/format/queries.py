"""Query sets: the queries of a deposit's rows, and their table."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
import polars as pl

from logitbank.errors import UsageError
from logitbank.store.format.limits import MAX_NAME, MAX_SIZE, check_name, check_number, check_text
from logitbank.store.format.schema import CLASS_HEADS, Query, json_digest

QUERIES_SCHEMA = pl.Schema(
    {
        "row": pl.Int32(),
        "ids": pl.List(pl.Int32),
        "segments": pl.List(pl.Int32),
        "position": pl.Int32(),
        "head": pl.String(),
        "language": pl.String(),
    }
)


@dataclass(frozen=True)
class QuerySet:
    """Distinct queries of one tokenizer, immutable, named by the digest of their content."""

    tokenizer: str
    """Digest of the tokenizer that made the ids."""
    queries: tuple[Query, ...]

    @classmethod
    def from_contexts(cls, tokenizer: str, queries: Sequence[Query]) -> tuple[Self, np.ndarray]:
        """Distinct contexts of a causal model, and the row of each of `queries`.

        A context is a sequence of tokens up to the scored position. Rows are in ascending order of
        tokens, so that equal contexts make an equal set. A context that is a prefix of others is
        stored as a position in the first of those.

        Raises
        ------
        UsageError
            There is no query, or one is for another head, or has segments or a language.
        """
        last: dict[tuple[int, ...], int] = {}
        for query in queries:
            if not _is_context(query):
                raise UsageError(f"A query of head {query.head} is not a causal context.")
            check_number(query.position, "position of a query", 0, len(query.ids) - 1)
            last[query.ids] = max(query.position, last.get(query.ids, 0))
        sequences = sorted({ids[: end + 1] for ids, end in last.items()})
        # Continuations of a sequence follow it directly.
        longest = [a for a, b in pairwise([*sequences, ()]) if b[: len(a)] != a]
        del last, sequences  # a million contexts need the memory
        # Numbers of a sequence and a position, as one: pairs would take most of the memory.
        width = 1 + max((query.position for query in queries), default=0)
        firsts = (
            bisect_left(longest, q.ids[: q.position + 1]) * width + q.position for q in queries
        )
        places, rows = np.unique(np.fromiter(firsts, np.int64, len(queries)), return_inverse=True)
        contexts = (Query(longest[place // width], place % width) for place in places.tolist())
        return cls(tokenizer, tuple(contexts)), rows

    def __post_init__(self) -> None:
        if not self.queries:
            raise UsageError("The query set is empty; it needs at least one query.")
        check_name(self.tokenizer, "tokenizer")
        _check_contents(self.queries)
        if len(set(self.queries)) != len(self.queries):
            raise UsageError("The query set has a query twice; remove duplicates.")
        kinds = {query.head if query.head in CLASS_HEADS else "" for query in self.queries}
        if len(kinds) > 1:
            raise UsageError("Queries of the next-sentence head need a query set of their own.")

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def has_causal_contexts(self) -> bool:
        """Whether each query is determined by the tokens up to its position."""
        return all(map(_is_context, self.queries))

    @cached_property
    def positions(self) -> int:
        """Number of tokens to run: contexts share prefixes, other queries share sequences."""
        if not self.has_causal_contexts:
            sequences = {(q.ids, q.segments, q.language) for q in self.queries}
            return sum(len(ids) for ids, _, _ in sequences)
        ordered = sorted({q.ids for q in self.queries})
        return sum(map(len, ordered)) - sum(_shared(a, b) for a, b in pairwise(ordered))

    @cached_property
    def name(self) -> str:
        """`q-` and the first 16 hex digits of the SHA-256 of the content."""
        content = [[q.ids, q.segments, q.position, q.head, q.language] for q in self.queries]
        return "q-" + json_digest([self.tokenizer, content])[:16]

    def to_frame(self) -> pl.DataFrame:
        """One row per query, columns of `QUERIES_SCHEMA`."""
        rows = [
            (row, q.ids, q.segments, q.position, q.head, q.language)
            for row, q in enumerate(self.queries)
        ]
        return pl.DataFrame(rows, schema=QUERIES_SCHEMA, orient="row")

    @classmethod
    def from_frame(cls, tokenizer: str, frame: pl.DataFrame) -> Self:
        """The query set that `to_frame` wrote.

        Raises
        ------
        UsageError
            The table is not a query set.
        polars.exceptions.PolarsError
            A column is missing or of another type.
        """
        frame = frame.cast(QUERIES_SCHEMA).sort("row")
        known: dict[tuple[int, ...], tuple[int, ...]] = {}  # positions of a text share its tuple
        columns = ("ids", "position", "head", "segments", "language")
        queries = []
        for ids, position, head, segments, language in frame.select(columns).iter_rows():
            key = tuple(ids)
            key = known.setdefault(key, key)
            queries.append(Query(key, position, head, tuple(segments), language))
        return cls(tokenizer, tuple(queries))


def _is_context(query: Query) -> bool:
    return query.head == "next_token" and not (query.segments or query.language)


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix of two sequences."""
    return next(
        (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def _check_contents(queries: Sequence[Query]) -> None:
    """Refuse other numbers than plain integers: True equals 1, but has another digest."""
    numbers = {"token id": (query.ids for query in queries)}
    numbers["segment"] = (query.segments for query in queries)
    for name, sequences in numbers.items():
        for ids in dict.fromkeys(sequences):
            kinds = {*map(type, ids)}
            for kind in kinds - {int}:
                refused = next(i for i in ids if type(i) is kind)
                check_number(refused, f"{name} of a query ({kind.__name__})", 0, MAX_SIZE)
            for extreme in (min(ids), max(ids)) if ids else ():
                check_number(extreme, f"{name} of a query", 0, MAX_SIZE)
    for query in queries:
        check_number(query.position, "position of a query", 0, len(query.ids) - 1)
    for language in {query.language for query in queries}:
        check_text(language, "language of a query", one_line=True, most=MAX_NAME)
