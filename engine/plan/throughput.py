"""How fast an engine will be, about, before it has run: for the size of a block of scores."""

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from logitbank.engine.weights.weights import weight_files
from logitbank.errors import WeightsError
from logitbank.store.format.layout import MAX_BLOCK_ROWS
from logitbank.store.format.queries import QuerySet

BLOCK_S = 30.0
"""What is lost with a worker: the block at hand, and the one that is being written."""
LEAST_ROWS = 64
"""Rows of the smallest block: committing a smaller one would take longer than scoring it, on a
large machine."""
CPU_RATE, GPU_RATE = 5e10, 2e13
"""Operations a second in float32: of two busy cores, and of a GPU that waits for launches."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """About how fast one architecture is on one kind of device."""

    parameters: float
    gpu: bool = False

    @classmethod
    def of(cls, folder: Path, *, gpu: bool) -> Self:
        """The pace by the sizes of a checkpoint's weight files; without weights, as if there were
        none."""
        size, width = 0, 4
        with suppress(WeightsError, OSError):
            files = weight_files(folder)
            size = sum(file.stat().st_size for file in files)
        with suppress(OSError, ValueError, AttributeError):
            config = json.loads((folder / "config.json").read_text())
            width = 2 if str(config.get("dtype", config.get("torch_dtype"))).endswith("16") else 4
        return cls(size / width, gpu)

    def block_rows(self, query_set: QuerySet) -> int:
        """Rows that are scored in `BLOCK_S`, as a power of two of at most 4,096.

        Examples
        --------
        >>> from logitbank.store.format.schema import Query
        >>> alone = QuerySet("t", (Query((1,) * 40, 39),))
        >>> Throughput(14e6).block_rows(alone), Throughput(1e9).block_rows(alone)
        (1024, 64)
        >>> [Throughput(size, gpu=True).block_rows(alone) for size in (160e6, 6.9e9)]
        [4096, 1024]
        """
        tokens = query_set.positions / len(query_set)
        row_s = 2 * self.parameters * tokens / (GPU_RATE if self.gpu else CPU_RATE)
        fit = BLOCK_S / max(row_s, BLOCK_S / MAX_BLOCK_ROWS)
        return int(max(LEAST_ROWS, 2 ** math.floor(math.log2(max(1.0, fit)))))
