"""How the rows of a deposit lie in blocks, and what a deposit is made of."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl

from logitbank.errors import UsageError
from logitbank.store.format.schema import CheckpointId, Codec, Dtype, Json, Keep

TARGET_BLOCK_BYTES = 64 * 2**20


MAX_BLOCK_ROWS = 4096


MAX_BLOCKS = 10**6  # 67 TB of the usual ones; a reader makes a set of them, in 0.1 s and 65 MB


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of one deposit: pure arithmetic from queries, vocabulary, dtype and keep level."""

    queries: int
    vocab: int
    """Outputs of the head, padding included."""
    dtype: Dtype
    keep: Keep
    block_rows: int
    codec: Codec = "blosc"
    """How `logprobs` are compressed: blosc is LZ4 of shuffled bits; zstd is that of the first
    banks."""

    def __post_init__(self) -> None:
        if self.queries > MAX_BLOCKS * self.block_rows:
            raise UsageError(
                f"{self.queries:,} queries in blocks of {self.block_rows:,} are more than"
                f" {MAX_BLOCKS:,} blocks; use larger blocks"
            )

    @classmethod
    def plan(
        cls, *, queries: int, vocab: int, dtype: Dtype, keep: Keep, block_rows: int | None = None
    ) -> Self:
        """Choose the block size: a power of two near `TARGET_BLOCK_BYTES`, at most 4,096 rows."""
        if block_rows is None:
            row_bytes = vocab * np.dtype(dtype).itemsize if keep.whole_rows else 1
            fit = max(1, TARGET_BLOCK_BYTES // row_bytes)
            block_rows = min(MAX_BLOCK_ROWS, 2 ** int(math.log2(fit)))
        return cls(queries, vocab, dtype, keep, block_rows)

    @property
    def blocks(self) -> int:
        return math.ceil(self.queries / self.block_rows)

    def rows(self, block: int) -> range:
        """Query rows of a block; the last block may be shorter."""
        start = block * self.block_rows
        return range(start, min(start + self.block_rows, self.queries))

    @property
    def chunk_shape(self) -> tuple[int, int]:
        """Inner chunk: at most 128 rows and about 4,096 entries, so that one token reads little."""
        parts = math.ceil(self.vocab / 4096)
        return math.gcd(self.block_rows, 128), math.ceil(self.vocab / parts)

    @property
    def shard_shape(self) -> tuple[int, int]:
        """Whole blocks; the vocabulary rounded up to whole inner chunks."""
        width = self.chunk_shape[1]
        return self.block_rows, math.ceil(self.vocab / width) * width

    @property
    def row_bytes(self) -> int:
        """Estimated bytes of one query on disk before compression."""
        full = self.vocab * np.dtype(self.dtype).itemsize if self.keep.whole_rows else 0
        return full + 40 * (3 + self.keep.k)


@dataclass(frozen=True, slots=True)
class BlockData:
    """What one block deposits."""

    logprobs: np.ndarray | None
    """(rows, v) in the layout's dtype, natural log-softmax; None unless the level is full."""
    scores: pl.DataFrame
    """Rows of `SCORES_SCHEMA`; `query` is the row in the query set, each has at least its top."""


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
