"""Division of an array of rows into shards and inner chunks."""

import math
from dataclasses import dataclass

import numpy as np

from logitbank.store.format.numbers import BFLOAT16_BITS, GridDtype


@dataclass(frozen=True, slots=True)
class Grid:
    """Sizes of an array of rows with one shard per block of rows."""

    rows: int
    columns: int
    dtype: GridDtype
    """Dtype of the numbers; `uint16` are bits of bfloat16."""
    block_rows: int

    @property
    def blocks(self) -> int:
        return math.ceil(self.rows / self.block_rows)

    def block_range(self, block: int) -> range:
        """Rows of a block; the last block may be shorter."""
        start = block * self.block_rows
        return range(start, min(start + self.block_rows, self.rows))

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.columns

    @property
    def chunk_shape(self) -> tuple[int, int]:
        """Shape of an inner chunk: at most 128 rows and about 4,096 columns."""
        parts = math.ceil(self.columns / 4096)
        return math.gcd(self.block_rows, 128), math.ceil(self.columns / parts)

    @property
    def shard_shape(self) -> tuple[int, int]:
        """Whole blocks; the columns rounded up to whole inner chunks."""
        width = self.chunk_shape[1]
        return self.block_rows, math.ceil(self.columns / width) * width

    @property
    def padding(self) -> float:
        """Value in a shard beyond the array's rows and columns."""
        return 0 if self.dtype == BFLOAT16_BITS else math.nan

    @property
    def row_bytes(self) -> int:
        """Bytes of one row before compression."""
        return self.columns * np.dtype(self.dtype).itemsize
