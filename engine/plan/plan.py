"""What the bank still lacks, and in what order to make it: plain values in, plain values out."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from logitbank.engine.backends.contexts import context_keys
from logitbank.engine.weights.heads import HeadSize
from logitbank.store.format.layout import Layout
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA, CheckpointId, Query

_HEAD_FILES = 3
"""Of a head without bias in a bank: what it is, its matrix, and what that is."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where each query of a prompt set is, or will be, in the bank."""

    places: tuple[tuple[str, int], ...]
    """(query set, row) of each query, in the order asked."""
    new: tuple[QuerySet, ...]
    """The queries that no stored query set holds: a set for contexts of a causal model, one for
    masks, and one for a next-sentence head, which has other outputs."""


@dataclass(frozen=True, slots=True)
class DepositPlan:
    """The blocks of one checkpoint × one query set that must be run."""

    checkpoint: CheckpointId
    query_set: str
    layout: Layout
    blocks: tuple[int, ...]
    head: HeadSize | None = None
    """What multiplies the states of its queries; None where their width is not known."""

    @property
    def rows(self) -> int:
        return sum(len(self.layout.rows(block)) for block in self.blocks)

    @property
    def bytes(self) -> int:
        return self.rows * self.layout.row_bytes


def head_bytes(deposits: Iterable[DepositPlan]) -> int:
    """Bytes of the heads that states of these rows need and the bank lacks."""
    return sum(head.bytes for _, head in _heads(deposits))


def _heads(deposits: Iterable[DepositPlan]) -> set[tuple[CheckpointId, HeadSize]]:
    """The heads that states of these rows need: each once."""
    return {(d.checkpoint, d.head) for d in deposits if d.head is not None}


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
        """Before compression, of rows, scores and the heads that states need."""
        return sum(d.bytes for d in self.deposits) + head_bytes(self._of_states)

    @property
    def _of_states(self) -> list[DepositPlan]:
        return [d for d in self.deposits if d.layout.width is not None]

    @property
    def files(self) -> int:
        """Objects that will be added, but for a few tables: about, as some may be there."""
        rows = sum(len(d.layout.shards(*d.blocks)) for d in self.deposits)
        each = [5 + (d.layout.grid is not None) for d in self.deposits]
        heads = len(_heads(self._of_states))
        return rows + sum(each) + len(self.to_run) + _HEAD_FILES * heads

    @property
    def to_run(self) -> tuple[CheckpointId, ...]:
        return tuple(dict.fromkeys(d.checkpoint for d in self.deposits))


def place(
    queries: Sequence[Query],
    tokenizer: str,
    stored: Mapping[str, QuerySet],
    homes: Collection[str] = (),
) -> Placement:
    """Find each query in the stored query sets; put the rest into new ones.

    What a causal model says after a context is one query, whatever continues it in a prompt.
    Contexts are taken from `homes`, the sets that have prompts of these names already, and from
    another set only where it has all of them, or they are half of it: a checkpoint that lacks the
    set has to run whole blocks of it. Beside these, a query of a sequence of its own is taken from
    wherever it is.
    """
    own = {name: each for name, each in sorted(stored.items()) if each.tokenizer == tokenizer}
    places = _by_content(queries, own)
    homes = {*homes, *(name for name, _ in places.values())}
    places |= _by_context(queries, [i for i in range(len(queries)) if i not in places], own, homes)
    new: list[QuerySet] = []
    lacking = [i for i in range(len(queries)) if i not in places]
    for kind, indices in _by_kind(queries, lacking).items():
        some = [queries[i] for i in indices]
        if kind == "contexts":
            query_set, rows = QuerySet.of_contexts(tokenizer, some)
        else:
            query_set = QuerySet(tokenizer, tuple(sorted({*some}, key=_order)))
            row_of = {query: row for row, query in enumerate(query_set.queries)}
            rows = [row_of[query] for query in some]
        new.append(query_set)
        places |= {i: (query_set.name, row) for i, row in zip(indices, rows, strict=True)}
    return Placement(tuple(places[i] for i in range(len(queries))), tuple(new))


def _by_content(
    queries: Sequence[Query], stored: Mapping[str, QuerySet]
) -> dict[int, tuple[str, int]]:
    """Where queries are that sets of sequences hold as they are, by index."""
    known: dict[Query, tuple[str, int]] = {}
    for name, query_set in stored.items():
        if not query_set.of_causal_contexts:
            for row, query in enumerate(query_set.queries):
                known.setdefault(query, (name, row))
    if not known:
        return {}
    return {i: known[query] for i, query in enumerate(queries) if query in known}


def _by_context(
    queries: Sequence[Query],
    lacking: Sequence[int],
    stored: Mapping[str, QuerySet],
    homes: Collection[str],
) -> dict[int, tuple[str, int]]:
    """Where contexts of some of the queries are, in `homes` and in sets they are much of."""
    found: dict[int, tuple[str, int]] = {}
    if not stored or not lacking:
        return found
    keys = dict(zip(lacking, context_keys([queries[i] for i in lacking]), strict=True))
    for name in sorted(stored, key=lambda name: name not in homes):
        rows = {key: row for row, key in enumerate(context_keys(stored[name].queries))}
        held = {i: (name, rows[key]) for i, key in keys.items() if key in rows}
        if name in homes or len(held) == len(keys) or 2 * len({*held.values()}) >= len(rows):
            found |= held
            keys = {i: key for i, key in keys.items() if i not in held}
    return found


def _by_kind(queries: Sequence[Query], indices: Iterable[int]) -> dict[str, list[int]]:
    """Those that one query set can hold: of outputs of one kind, and contexts by themselves."""
    kinds: dict[str, list[int]] = {}
    for i in indices:
        query = queries[i]
        plain = query.head == "next_token" and not (query.segments or query.language)
        kind = "classes" if query.head == "next_sentence" else "tokens"
        kinds.setdefault("contexts" if plain else kind, []).append(i)
    return kinds


def _order(query: Query) -> tuple[object, ...]:
    # A shared beginning side by side, where engines share it.
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
