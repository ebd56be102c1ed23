"""The size of a block of scores, from a rough estimate of how fast the engine is."""

import json
import math
from contextlib import suppress
from pathlib import Path

from logitbank.engine.weights.weights import weight_files
from logitbank.errors import WeightsError
from logitbank.store.format.layout import MAX_BLOCK_ROWS
from logitbank.store.format.queries import QuerySet

BLOCK_S = 30.0
"""Scoring time of a block. A killed worker loses the block in progress and the one in writing."""
MIN_ROWS = 64
"""Committing a smaller block would take longer than scoring it on a large machine."""
CPU_RATE, GPU_RATE = 5e10, 2e13
"""Float32 operations a second of two busy cores, and of a GPU that waits for launches."""


def parameter_count(folder: Path) -> float:
    """Number of parameters, from the sizes of a checkpoint's weight files; 0 without weights."""
    size, width = 0, 4
    with suppress(WeightsError, OSError):
        size = sum(file.stat().st_size for file in weight_files(folder))
    with suppress(OSError, ValueError, AttributeError, RecursionError):
        config = json.loads((folder / "config.json").read_text())
        width = 2 if str(config.get("dtype", config.get("torch_dtype"))).endswith("16") else 4
    return size / width


def rows_per_block(parameters: float, query_set: QuerySet, *, gpu: bool = False) -> int:
    """Rows that are scored in about `BLOCK_S` seconds: a power of two of at most 4,096.

    Examples
    --------
    >>> from logitbank.store.format.schema import Query
    >>> query_set = QuerySet("t", (Query((1,) * 40, 39),))
    >>> rows_per_block(14e6, query_set), rows_per_block(1e9, query_set)
    (1024, 64)
    >>> [rows_per_block(size, query_set, gpu=True) for size in (160e6, 6.9e9)]
    [4096, 1024]
    """
    tokens = query_set.positions / len(query_set)
    row_s = 2 * parameters * tokens / (GPU_RATE if gpu else CPU_RATE)
    rows = BLOCK_S / max(row_s, BLOCK_S / MAX_BLOCK_ROWS)
    return int(max(MIN_ROWS, 2 ** math.floor(math.log2(max(1.0, rows)))))
