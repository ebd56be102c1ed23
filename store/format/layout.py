"""How the rows of a deposit lie in blocks, and what a deposit is made of."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self, get_args

import numpy as np
import polars as pl

from logitbank.errors import UsageError
from logitbank.store.format.grid import Grid
from logitbank.store.format.numbers import STORED_AS
from logitbank.store.format.schema import (
    CheckpointId,
    Dtype,
    Head,
    Json,
    Keep,
    RowArray,
)
from logitbank.wording import KEEP_WITHOUT_STATES

TARGET_BLOCK_BYTES = 64 * 2**20
WORKED_OUT_BYTES = 128 * 2**20
"""Of rows that are worked out of states at once. Each time the head is laid out anew, which of half
as many rows takes a tenth of the product."""
MAX_BLOCK_ROWS = 4096
MAX_BLOCKS = 10**6  # 67 TB of the usual ones; a reader makes a set of them, in 0.1 s and 65 MB


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of one deposit: pure arithmetic from queries, vocabulary, dtype and keep level.

    Raises
    ------
    UsageError
        There are too many blocks, or a width is given where no states are kept, or none where they
        are.
    """

    queries: int
    vocab: int
    """Outputs of the head, padding included."""
    dtype: Dtype
    """Of the array that is deposited."""
    keep: Keep
    block_rows: int
    width: int | None = None
    """Entries of a state, which the head multiplies; None but at keep level `hidden`."""

    def __post_init__(self) -> None:
        states = self.keep.array == "hidden"
        if states and self.width is None:
            raise UsageError(
                f"keep level {self.keep} needs the states that a head multiplies, and their width;"
                f" logits alone can be kept at {KEEP_WITHOUT_STATES}"
            )
        if self.width is not None and not states:
            raise UsageError(f"keep level {self.keep} has no states; leave out their width")
        if self.dtype == "bfloat16" and not states:
            raise UsageError(
                f"keep level {self.keep} is in float16 or float32: in bfloat16 log-probabilities"
                " would be good to 0.03; states may be in it (--keep hidden)"
            )
        if self.queries > MAX_BLOCKS * self.block_rows:
            raise UsageError(
                f"{self.queries:,} queries in blocks of {self.block_rows:,} are more than"
                f" {MAX_BLOCKS:,} blocks; use larger blocks"
            )

    @classmethod
    def plan(
        cls,
        *,
        queries: int,
        vocab: int,
        dtype: Dtype,
        keep: Keep,
        block_rows: int | None = None,
        width: int | None = None,
    ) -> Self:
        """Choose the block size: a power of two near `TARGET_BLOCK_BYTES`, at most 4,096 rows."""
        if block_rows is None:
            layout = cls(queries, vocab, dtype, keep, MAX_BLOCK_ROWS, width=width)
            fit = max(1, TARGET_BLOCK_BYTES // (layout.array_bytes or 1))
            block_rows = min(MAX_BLOCK_ROWS, 2 ** int(math.log2(fit)))
        return cls(queries, vocab, dtype, keep, block_rows, width=width)

    @property
    def blocks(self) -> int:
        return math.ceil(self.queries / self.block_rows)

    def rows(self, block: int) -> range:
        """Query rows of a block; the last block may be shorter."""
        start = block * self.block_rows
        return range(start, min(start + self.block_rows, self.queries))

    @property
    def grid(self) -> Grid | None:
        """The array of rows beside the scores; None if blocks have scores alone."""
        if self.keep.array is None:
            return None
        columns = self.vocab if self.width is None else self.width
        return Grid(self.queries, columns, STORED_AS[self.dtype], self.block_rows)

    def shards(self, *blocks: int) -> list[str]:
        """Shards of some blocks, relative to the deposit; none if blocks have scores alone."""
        return [f"{self.keep.array}/c/{block}/0" for block in blocks if self.keep.array]

    @property
    def row_dtype(self) -> Dtype:
        """Dtype of log-probabilities as they are read: float32 where states give them."""
        return self.dtype if self.width is None else "float32"

    @property
    def row_ranges(self) -> list[range]:
        """All rows, divided into ranges that are read, or computed from states, at once.

        A block of stored log-probabilities, or at most `WORKED_OUT_BYTES` of computed ones.
        """
        size = self.block_rows
        if self.width is not None:
            fit = max(1, WORKED_OUT_BYTES // (4 * self.vocab))
            size = min(size, fit - fit % 128 or fit)  # whole inner chunks
        return [
            range(start, min(start + size, rows.stop))
            for rows in map(self.rows, range(self.blocks))
            for start in range(rows.start, rows.stop, size)
        ]

    def about(self, committed: int) -> list[tuple[str, str]]:
        """Names and values that describe a deposit with this number of committed queries."""
        return [
            ("queries", f"{committed:,} of {self.queries:,}"),
            ("keep", f"{self.keep}"),
            ("dtype", self.dtype),
            ("outputs", f"{self.vocab:,}"),
        ]

    def formatted(self, committed: int) -> str:
        """The same in one line."""
        return ", ".join(f"{name} {value}" for name, value in self.about(committed))

    @property
    def row_bytes(self) -> int:
        """Estimated bytes of one query on disk before compression."""
        return self.array_bytes + 40 * (3 + self.keep.k)

    @property
    def array_bytes(self) -> int:
        """Bytes of one query in the array beside its scores, before compression."""
        return 0 if self.grid is None else self.grid.row_bytes


@dataclass(frozen=True, slots=True)
class BlockData:
    """What one block deposits."""

    logprobs: np.ndarray | None
    """(rows, v) in the layout's dtype, natural log-softmax; None unless the level is full."""
    scores: pl.DataFrame
    """Rows of `SCORES_SCHEMA`; `query` is the row in the query set, each has at least its top."""
    hidden: np.ndarray | None = None
    """(rows, width) in the layout's dtype, what the head multiplies; None unless the level is
    hidden."""

    @property
    def arrays(self) -> dict[RowArray, np.ndarray]:
        """What is deposited beside the scores, by the arrays' names."""
        values = {name: getattr(self, name) for name in get_args(RowArray)}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def array_bytes(self) -> int:
        """Bytes of these arrays before compression."""
        return sum(value.nbytes for value in self.arrays.values())


@dataclass(frozen=True, slots=True)
class DepositSpec:
    """What a deposit is: one checkpoint × one query set, and how it was made."""

    checkpoint: CheckpointId
    query_set: str
    layout: Layout
    vocab_entries: int
    """Entries of the tokenizer; outputs from here on are padding."""
    provenance: Mapping[str, Json]
    """Digests (`weights`, `tokenizer`), engine, versions, dtypes, flags, host."""
    heads: Mapping[Head, str] = field(default_factory=dict)
    """Digest of the head that multiplies the states, by the kind of head that the queries have;
    one at keep level `hidden`, else none. See `Bank.put_head`."""
