"""The plan of an extraction, and the placement of its queries: pure functions of plain values."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from logitbank.engine.backends.contexts import context_keys
from logitbank.engine.weights.heads import HeadSize
from logitbank.store.format.layout import MAX_BLOCK_ROWS, Layout
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA, CheckpointId, Query

MIN_BLOCK_ROWS = 64
"""Committing a smaller block would take longer than scoring it on a large machine."""
CPU_BLOCK, GPU_BLOCK = 1.5e12, 6e14
"""Most float32 operations of a block of scores: half a minute of two busy cores, and of a GPU."""
_HEAD_FILES = 3
"""Files of an LM head without bias in a bank: its description, its matrix, and the array's."""


@dataclass(frozen=True, slots=True)
class DepositPlan:
    """The blocks of one checkpoint and one query set that are missing."""

    checkpoint: CheckpointId
    query_set: str
    layout: Layout
    blocks: tuple[int, ...]
    head: HeadSize | None = None
    """LM head of these queries; None if its width is unknown."""

    @property
    def rows(self) -> int:
        return sum(len(self.layout.rows(block)) for block in self.blocks)

    @property
    def bytes(self) -> int:
        return self.rows * self.layout.row_bytes


def head_bytes(deposits: Iterable[DepositPlan]) -> int:
    """Bytes of the LM heads that states of these deposits need and the bank does not have."""
    return sum(head.bytes for _, head in _heads(deposits))


def _heads(deposits: Iterable[DepositPlan]) -> set[tuple[CheckpointId, HeadSize]]:
    return {(d.checkpoint, d.head) for d in deposits if d.head is not None}


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of one extraction."""

    deposits: tuple[DepositPlan, ...]
    """Only those with missing blocks."""
    checkpoints: int
    """Number of requested checkpoints, complete ones included."""
    queries: int
    """Number of distinct queries of the prompt sets."""
    prompts: int
    """Number of prompts, option orders included."""
    orders: int = 1
    """Number of option orders of the prompt set that has most."""
    existing: int = 0
    """Number of requested results that the bank has."""
    shard: str = ""
    """`i/n` for a shard of the plan; the next two fields count all shards."""
    missing_rows: int = 0
    """Number of missing rows of all shards."""
    missing_checkpoints: int = 0
    """Number of checkpoints with missing rows."""

    @property
    def rows(self) -> int:
        return sum(d.rows for d in self.deposits)

    @property
    def bytes(self) -> int:
        """Size of rows, scores and the LM heads of states, before compression."""
        return sum(d.bytes for d in self.deposits) + head_bytes(self._with_states)

    @property
    def _with_states(self) -> list[DepositPlan]:
        return [d for d in self.deposits if d.layout.width is not None]

    @property
    def files(self) -> int:
        """Number of files that will be added, without the tables of prompts."""
        rows = sum(len(d.layout.shards(*d.blocks)) for d in self.deposits)
        each = [5 + (d.layout.grid is not None) for d in self.deposits]
        heads = len(_heads(self._with_states))
        return rows + sum(each) + len(self.to_run) + _HEAD_FILES * heads

    @property
    def to_run(self) -> tuple[CheckpointId, ...]:
        return tuple(dict.fromkeys(d.checkpoint for d in self.deposits))


def joined_plan(plans: Sequence[Plan]) -> Plan:
    """Several plans as one. Prompts are counted once: the plans have the same prompt sets."""
    return Plan(
        tuple(deposit for plan in plans for deposit in plan.deposits),
        checkpoints=sum(plan.checkpoints for plan in plans),
        queries=max(plan.queries for plan in plans),
        prompts=max(plan.prompts for plan in plans),
        orders=max(plan.orders for plan in plans),
        existing=sum(plan.existing for plan in plans),
        shard=plans[-1].shard,
        missing_rows=sum(plan.missing_rows for plan in plans),
        missing_checkpoints=sum(plan.missing_checkpoints for plan in plans),
    )


@dataclass(frozen=True, slots=True)
class Placement:
    """Where each query is, or will be, in the bank."""

    query_rows: pl.DataFrame
    """`query_set` and `row` of each query, in the order of the request."""
    new: tuple[QuerySet, ...]
    """Query sets of the queries that the bank does not have: one of contexts of a causal model, one
    of masks, and one of a next-sentence head, which has other outputs."""


def assign_queries(
    queries: Sequence[Query],
    tokenizer: str,
    stored: Mapping[str, QuerySet],
    used: Collection[str] = (),
) -> Placement:
    """Find each query in the stored query sets, and put the others into new ones.

    Equal contexts of a causal model are one query, whatever follows them in a prompt. They are
    placed in `used`, the query sets of prompt sets with these names. Another set of contexts is
    reused only if it has all queries, or if they are at least half of it: a checkpoint without this
    query set has to run whole blocks of it. A set of other queries is always reused.
    """
    sets, set_rows = [""] * len(queries), np.zeros(len(queries), np.int32)
    candidates = sorted(
        (name for name, query_set in stored.items() if query_set.tokenizer == tokenizer),
        key=lambda name: (name not in used, name),
    )
    missing: Collection[int] = range(len(queries))
    keys = dict(enumerate(context_keys(queries))) if candidates else {}
    for name in candidates:
        query_set = stored[name]
        rows = {key: row for row, key in enumerate(context_keys(query_set.queries))}
        known = {i: rows[keys[i]] for i in missing if keys[i] in rows}
        is_large_part = len(known) == len(missing) or 2 * len({*known.values()}) >= len(rows)
        if name in used or is_large_part or not query_set.has_causal_contexts:
            for i, row in known.items():
                sets[i], set_rows[i] = name, row
            missing = [i for i in missing if i not in known]
        if not missing:
            break
    new: list[QuerySet] = []
    for kind, indices in _by_kind(queries, missing).items():
        group = [queries[i] for i in indices]
        if kind == "contexts":
            query_set, group_rows = QuerySet.from_contexts(tokenizer, group)
        else:
            query_set = QuerySet(tokenizer, tuple(sorted({*group}, key=_order)))
            row_of = {query: row for row, query in enumerate(query_set.queries)}
            group_rows = np.array([row_of[query] for query in group])
        new.append(query_set)
        set_rows[indices] = group_rows
        for i in indices:
            sets[i] = query_set.name
    return Placement(pl.DataFrame({"query_set": sets, "row": set_rows}), tuple(new))


def _by_kind(queries: Sequence[Query], indices: Iterable[int]) -> dict[str, list[int]]:
    """Indices of queries that can be in one query set, by kind."""
    kinds: dict[str, list[int]] = {}
    for i in indices:
        query = queries[i]
        plain = query.head == "next_token" and not (query.segments or query.language)
        kind = "classes" if query.head == "next_sentence" else "tokens"
        kinds.setdefault("contexts" if plain else kind, []).append(i)
    return kinds


def _order(query: Query) -> tuple[object, ...]:
    # Shared prefixes are neighbours, because engines share neighbours.
    return query.ids, query.segments, query.position, query.head, query.language


def with_query_rows(table: pl.DataFrame, query_rows: pl.DataFrame) -> pl.DataFrame:
    """A prompt table with the place of its queries in the bank instead of their index, `query`."""
    places = query_rows.select(pl.col("query_set", "row").gather(table["query"]))
    placed = table.drop("query").hstack(places)
    return placed.select(*PROMPTS_SCHEMA, pl.exclude(*PROMPTS_SCHEMA))


def rows_per_block(weights: int, query_set: QuerySet, *, gpu: bool) -> int:
    """Rows of scores that are written together: a power of two of at most 4,096.

    `weights` are the bytes of a checkpoint's weight files, with two or more for each parameter.
    Then a slow machine scores a block in about half a minute, which is lost if it is killed.

    Examples
    --------
    >>> from logitbank.store.format.schema import Query
    >>> query_set = QuerySet("t", (Query((1,) * 40, 39),))
    >>> [rows_per_block(2 * size, query_set, gpu=False) for size in (14 * 10**6, 10**9)]
    [1024, 64]
    """
    tokens = query_set.positions / len(query_set)
    rows = (GPU_BLOCK if gpu else CPU_BLOCK) / max(1.0, weights * tokens)
    return int(min(MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, 2 ** math.floor(math.log2(max(1.0, rows))))))


def needed_blocks(rows: np.ndarray, layout: Layout, committed: Collection[int]) -> tuple[int, ...]:
    """Blocks that contain one of `rows` and are not committed, ascending."""
    if len(committed) == layout.blocks:  # of most deposits of a long series
        return ()
    return tuple(sorted({*np.unique(rows // layout.block_rows).tolist()} - {*committed}))
