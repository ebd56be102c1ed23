"""Query sets: what a deposit has rows for, and how it is kept. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import polars as pl

from logitbank.errors import UsageError
from logitbank.store.format.contexts import CONTEXTS_SCHEMA, Asked, ContextTree, grown
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
        "sequence": pl.Int32(),  # queries of one forward pass share it
    }
)


@dataclass(frozen=True)
class QuerySet:
    """Distinct queries of one tokenizer, immutable, named by the digest of the content."""

    tokenizer: str
    """Digest of the tokenizer that made the ids."""
    queries: tuple[Query, ...]
    tree: ContextTree | None = field(default=None, init=False, repr=False, compare=False)
    """Of queries that are contexts, how they are kept; None where each has its own sequence."""

    @classmethod
    def of_contexts(cls, tokenizer: str, queries: Sequence[Query]) -> tuple[Self, list[int]]:
        """What a causal model is asked after some contexts, and the row of each of `queries`.

        Queries of equal contexts have one row, whatever sequences they are asked in.

        Raises
        ------
        UsageError
            There is none, or one is of another head, or has segments or a language.
        """
        for query in queries:
            if query.head != "next_token" or query.segments or query.language:
                raise UsageError(f"a query of head {query.head} is no context of a causal model")
        tree, contexts, rows = grown([(query.ids, query.position) for query in queries])
        return cls._of_tree(tokenizer, tree, contexts), rows

    @classmethod
    def _of_tree(cls, tokenizer: str, tree: ContextTree, contexts: Iterable[Asked]) -> Self:
        # What is checked of queries by themselves is so of those of a tree.
        check_name(tokenizer, "tokenizer")
        query_set = object.__new__(cls)
        queries = tuple(Query(ids, position) for ids, position in contexts)
        for name, value in (("tokenizer", tokenizer), ("queries", queries), ("tree", tree)):
            object.__setattr__(query_set, name, value)
        return query_set

    def __post_init__(self) -> None:
        if not self.queries:
            raise UsageError("a query set needs at least one query; this one is empty")
        check_name(self.tokenizer, "tokenizer")
        _check_contents(self.queries)
        if len(set(self.queries)) != len(self.queries):
            raise UsageError("a query set holds each query once; remove the duplicates")
        kinds = {query.head if query.head in CLASS_HEADS else "" for query in self.queries}
        if len(kinds) > 1:
            raise UsageError(
                "a query set is of heads with as many outputs; put those of the next-sentence "
                "head into one of their own"
            )

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def positions(self) -> int:
        """Tokens of all queries, those that they share once: beginnings of contexts, or equal
        sequences."""
        if self.tree is not None:
            return len(self.tree.token)
        sequences = {(query.ids, query.segments, query.language) for query in self.queries}
        return sum(len(ids) for ids, _, _ in sequences)

    @cached_property
    def name(self) -> str:
        """`q-` and the first 16 hex digits of the SHA-256 of the content."""
        if self.tree is not None:
            return "q-" + self.tree.digest(self.tokenizer)[:16]
        content = [[q.ids, q.segments, q.position, q.head, q.language] for q in self.queries]
        return "q-" + json_digest([self.tokenizer, content])[:16]

    def to_frame(self) -> pl.DataFrame:
        """One row per query, columns of `QUERIES_SCHEMA`."""
        sequences: dict[tuple[object, ...], int] = {}
        rows = [
            (
                row,
                q.ids,
                q.segments,
                q.position,
                q.head,
                q.language,
                sequences.setdefault((q.ids, q.segments, q.language), len(sequences)),
            )
            for row, q in enumerate(self.queries)
        ]
        return pl.DataFrame(rows, schema=QUERIES_SCHEMA, orient="row")

    def stored(self) -> pl.DataFrame:
        """The table that is kept: the tree, or a row per query."""
        return self.to_frame() if self.tree is None else self.tree.to_frame()

    @classmethod
    def from_stored(cls, tokenizer: str, frame: pl.DataFrame) -> Self:
        """The query set that `stored` wrote.

        Raises
        ------
        UsageError
            It is none.
        polars.exceptions.PolarsError
            A column is missing or of another type.
        """
        if "depth" in frame.columns:
            tree = ContextTree.from_frame(frame.cast(CONTEXTS_SCHEMA))
            return cls._of_tree(tokenizer, tree, tree.contexts())
        frame = frame.cast(QUERIES_SCHEMA)
        columns = ("ids", "position", "head", "segments", "language")
        rows = frame.sort("row").select(columns).iter_rows()
        return cls(
            tokenizer,
            tuple(
                Query(tuple(ids), at, head, tuple(seg), lang) for ids, at, head, seg, lang in rows
            ),
        )


def _check_contents(queries: Sequence[Query]) -> None:
    """Ids are plain integers: True equals 1, and has another digest."""
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
