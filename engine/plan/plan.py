"""What the bank still lacks, and in what order to make it: plain values in, plain values out."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from logitbank.engine.backends.contexts import context_keys
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import PROMPTS_SCHEMA, CheckpointId, Dtype, Keep, Query, QuerySet

# Levels offered when a plan does not fit the disk, from the largest.
_SMALLER: tuple[tuple[str, Dtype], ...] = (
    ("full", "float16"),
    ("topk:64", "float16"),
    ("options", "float16"),
)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where each query of a prompt set is, or will be, in the bank."""

    places: tuple[tuple[str, int], ...]
    """(query set, row) of each query, in the order asked."""
    new: tuple[QuerySet, ...]
    """The queries that no stored query set holds: a set for those of the vocabulary, and one for
    those of a next-sentence head, which has other outputs."""


@dataclass(frozen=True, slots=True)
class DepositPlan:
    """The blocks of one checkpoint × one query set that must be run."""

    checkpoint: CheckpointId
    query_set: str
    layout: Layout
    blocks: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(len(self.layout.rows(block)) for block in self.blocks)

    @property
    def bytes(self) -> int:
        return self.rows * self.layout.row_bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one extraction will run."""

    deposits: tuple[DepositPlan, ...]
    """Only those with something to run."""
    checkpoints: int
    """Checkpoints that were asked for, complete ones included."""
    queries: int
    """Distinct queries of the prompt sets."""
    prompts: int
    """Prompts asked for, option orders counted."""
    positions: int = 0
    """Positions that the prompts are about, before equal ones became one query."""
    orders: int = 1
    """Orders of the options, of the prompt set that has most."""
    shard: str = ""
    """`i/n` where this is one share of an extraction; the two numbers are of all shares."""
    missing_rows: int = 0
    """Rows that the bank lacks, whoever runs them; counted for a share only."""
    missing_checkpoints: int = 0
    """Checkpoints that lack one of these rows."""

    @property
    def rows(self) -> int:
        return sum(d.rows for d in self.deposits)

    @property
    def bytes(self) -> int:
        return sum(d.bytes for d in self.deposits)

    @property
    def files(self) -> int:
        """Objects that will be added, but for a few tables: about, as some may be there."""
        rows = sum(len(d.blocks) for d in self.deposits if d.layout.keep.whole_rows)
        each = [6 if d.layout.keep.whole_rows else 5 for d in self.deposits]
        return rows + sum(each) + len(self.to_run)

    @property
    def to_run(self) -> tuple[CheckpointId, ...]:
        return tuple(dict.fromkeys(d.checkpoint for d in self.deposits))


def place(queries: Sequence[Query], tokenizer: str, stored: Mapping[str, QuerySet]) -> Placement:
    """Find each query in the stored query sets; put the rest, sorted by ids, into new ones.

    What a causal model says after a context is one query, whatever continues it in a prompt: one
    stands for all that are new. One that is stored is taken as it is, and a context that is not so
    only from sets that have others of these queries, so that no set is run for one context of it.
    Sorting puts sequences with a shared beginning side by side, where engines share it.
    """
    known: dict[Query, tuple[str, int]] = {}
    for name, query_set in sorted(stored.items()):
        if query_set.tokenizer == tokenizer:
            for row, query in enumerate(query_set.queries):
                known.setdefault(query, (name, row))
    homes = sorted({known[query][0] for query in queries if query in known})
    contexts: dict[Hashable, tuple[str, int]] = {}
    for name in homes:
        for row, key in enumerate(context_keys(stored[name].queries)):
            contexts.setdefault(key, (name, row))
    keys = context_keys(queries)
    unplaced: dict[Hashable, Query] = {}
    for query, key in sorted(zip(queries, keys, strict=True), key=lambda pair: _order(pair[0])):
        if query not in known and key not in contexts:
            unplaced.setdefault(key, query)
    ours = unplaced.values()
    kinds = ([q for q in ours if (q.head == "next_sentence") == nsp] for nsp in (False, True))
    new = tuple(QuerySet(tokenizer, tuple(kind)) for kind in kinds if kind)
    rows = {
        q: (query_set.name, row) for query_set in new for row, q in enumerate(query_set.queries)
    }
    contexts |= {key: rows[query] for key, query in unplaced.items()}
    places = (
        known[query] if query in known else contexts[key]
        for query, key in zip(queries, keys, strict=True)
    )
    return Placement(tuple(places), new)


def _order(query: Query) -> tuple[object, ...]:
    return query.ids, query.segments, query.position, query.head, query.language


def placed(table: pl.DataFrame, places: Sequence[tuple[str, int]]) -> pl.DataFrame:
    """A prompt table that points into the bank: `query` becomes (query_set, row) by `places`."""
    where = pl.DataFrame(
        {
            "query": range(len(places)),
            "query_set": [p[0] for p in places],
            "row": [p[1] for p in places],
        },
        schema={"query": pl.Int32, "query_set": pl.String, "row": pl.Int32},
    )
    extra = [c for c in table.columns if c not in PROMPTS_SCHEMA and c != "query"]
    return table.join(where, on="query", how="left", maintain_order="left").select(
        *PROMPTS_SCHEMA, *extra
    )


def needed_blocks(
    rows: Iterable[int], layout: Layout, committed: Collection[int]
) -> tuple[int, ...]:
    """Blocks that hold one of `rows` and are not committed, ascending."""
    return tuple(sorted({row // layout.block_rows for row in rows} - set(committed)))


def fitting_levels(rows: int, vocab: int, free_bytes: int) -> list[str]:
    """Keep levels and dtypes whose estimate for `rows` queries fits in `free_bytes`."""
    fits = []
    for level, dtype in _SMALLER:
        layout = Layout.plan(queries=rows, vocab=vocab, dtype=dtype, keep=Keep.parse(level))
        if rows * layout.row_bytes <= free_bytes:
            fits.append(f"--keep {level} --dtype {dtype}" if level == "full" else f"--keep {level}")
    return fits
