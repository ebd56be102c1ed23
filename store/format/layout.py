"""Blocks of a deposit's rows, and the contents of a deposit."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import polars as pl

from logitbank.errors import UsageError
from logitbank.store.format.grid import Grid
from logitbank.store.format.numbers import STORED_AS
from logitbank.store.format.schema import CheckpointId, Dtype, Head, Json, Keep
from logitbank.wording import KEEP_WITHOUT_STATES

TARGET_BLOCK_BYTES = 64 * 2**20
COMPUTED_BYTES = 128 * 2**20
"""Bytes of rows that are computed from states at once. Each product lays the head out anew, which
takes a tenth of the time with half as many rows."""
MAX_BLOCK_ROWS = 4096
MAX_BLOCKS = 10**6  # 67 TB with the default size; a reader's set of them takes 0.1 s and 65 MB


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of one deposit: pure arithmetic from queries, vocabulary, dtype and keep level.

    Raises
    ------
    UsageError
        There are too many blocks, or `width` does not fit the keep level.
    """

    queries: int
    vocab: int
    """Outputs of the head, padding included."""
    dtype: Dtype
    """Dtype of the array of rows or states."""
    keep: Keep
    block_rows: int
    width: int | None = None
    """Entries of a hidden state at keep level `hidden`; None at others."""

    def __post_init__(self) -> None:
        states = self.keep.array == "hidden"
        if states != (self.width is not None):
            raise UsageError(
                f"Width {self.width} does not fit keep level {self.keep}: only hidden states have a"
                f" width. Keep logits as {KEEP_WITHOUT_STATES}."
            )
        if self.dtype == "bfloat16" and not states:
            raise UsageError(
                f"Keep level {self.keep} needs float16 or float32: bfloat16 log-probabilities have"
                " errors of 0.03. Use bfloat16 with --keep hidden only."
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
        """The array of rows or states; None if blocks have only scores."""
        if self.keep.array is None:
            return None
        columns = self.vocab if self.width is None else self.width
        return Grid(self.queries, columns, STORED_AS[self.dtype], self.block_rows)

    def shards(self, *blocks: int) -> list[str]:
        """Shards of some blocks, relative to the deposit; none if blocks have only scores."""
        return [f"{self.keep.array}/c/{block}/0" for block in blocks if self.keep.array]

    @property
    def row_dtype(self) -> Dtype:
        """Dtype of log-probabilities as they are read: float32 where states give them."""
        return self.dtype if self.width is None else "float32"

    @property
    def row_ranges(self) -> list[range]:
        """All rows, divided into ranges that are read, or computed from states, at once.

        A block of stored log-probabilities, or at most `COMPUTED_BYTES` of computed ones.
        """
        size = self.block_rows
        if self.width is not None:
            fit = max(1, COMPUTED_BYTES // (4 * self.vocab))
            size = min(size, fit - fit % 128 or fit)  # whole inner chunks
        return [
            range(start, min(start + size, rows.stop))
            for rows in map(self.rows, range(self.blocks))
            for start in range(rows.start, rows.stop, size)
        ]

    @property
    def row_bytes(self) -> int:
        """Estimated bytes of one query on disk before compression."""
        return self.array_bytes + 40 * (3 + self.keep.k)

    @property
    def array_bytes(self) -> int:
        """Bytes of one query in the array of rows or states, before compression."""
        return 0 if self.grid is None else self.grid.row_bytes


@dataclass(frozen=True, slots=True)
class BlockData:
    """Data of one block."""

    rows: np.ndarray | None
    """Rows in the layout's dtype: natural log-softmax (rows, v) at keep level full, or final hidden
    states (rows, width) at hidden; None at other levels."""
    scores: pl.DataFrame
    """Rows of `SCORES_SCHEMA`; `query` is the row in the query set, each has at least its top."""

    @property
    def array_bytes(self) -> int:
        """Bytes of the rows before compression."""
        return 0 if self.rows is None else self.rows.nbytes


@dataclass(frozen=True, slots=True)
class DepositSpec:
    """One checkpoint × one query set, and how their results were made."""

    checkpoint: CheckpointId
    query_set: str
    layout: Layout
    vocab_entries: int
    """Entries of the tokenizer; outputs from here on are padding."""
    provenance: Mapping[str, Json]
    """Digests (`weights`, `tokenizer`), engine, versions, dtypes, flags, host."""
    heads: Mapping[Head, str] = field(default_factory=dict)
    """Digest of the LM head by the kind of head of the queries: one at keep level `hidden`, else
    none. See `Bank.put_head`."""
