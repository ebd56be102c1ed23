"""Rows of a deposit: stored log-probabilities, or those computed from states and the LM head."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from logitbank.errors import KeepLevelError
from logitbank.store.deposits.rows import ShardedArray, shard_digests
from logitbank.store.files import objects
from logitbank.store.files.objects import Digest
from logitbank.store.format import zarrays
from logitbank.store.format.commits import Committed
from logitbank.store.format.layout import DepositSpec
from logitbank.store.format.numbers import as_float32, logsumexp
from logitbank.store.heads.stored import StoredHead

ReadCommitted = Callable[[Callable[[Committed], dict[int, Digest]]], dict[int, Digest]]
"""See `Deposit.read_committed`."""
_ROWS_IN_CACHE = 4
"""Rows that stay in a core's cache between two steps."""


@dataclass(frozen=True)
class RowReader:
    """Reads the array of rows or states of one deposit."""

    path: Path
    """Folder of the deposit."""
    spec: DepositSpec
    read_committed: ReadCommitted

    def require_rows(self, deposit: object) -> None:
        """Refuse a deposit without full rows or states; the message names the deposit."""
        keep = self.spec.layout.keep
        if not keep.whole_rows:
            raise KeepLevelError(
                f"{deposit} keeps {keep}, not full vocabulary rows. Read listed tokens with"
                " scores(), or extract again with --keep full, hidden or auto into another bank."
            )

    def require_states(self, deposit: object) -> None:
        """Refuse a deposit without states; the message names the deposit."""
        if self.spec.layout.width is None:
            raise KeepLevelError(
                f"{deposit} keeps {self.spec.layout.keep}, not hidden states. Extract again with"
                " --keep hidden into another bank."
            )

    def head(self) -> StoredHead:
        """The LM head of the states, or DamagedError if it is missing or does not fit."""
        (digest,), layout = self.spec.heads.values(), self.spec.layout
        needed_by = f"{self.spec.checkpoint}, {self.spec.query_set}"
        head = StoredHead.open(self.path.parents[3], digest, needed_by=needed_by)
        head.require_shape(layout.vocab, layout.width, needed_by)
        return head

    def read(
        self,
        rows: np.ndarray | None,
        *,
        columns: np.ndarray | None = None,
        dtype: DTypeLike | None = None,
    ) -> np.ndarray:
        """Stored rows (q,), in any order, all if None.

        Without a dtype they have the stored one, or float32 for bfloat16.
        """
        array, stored_dtype = self._open(rows), self.spec.layout.dtype
        if stored_dtype == "bfloat16":
            bits = array.read(rows, columns, dtype=array.grid.dtype)
            return as_float32(bits).astype(dtype or np.float32, copy=False)
        return array.read(rows, columns, dtype=stored_dtype if dtype is None else dtype)

    def logprobs(
        self,
        rows: np.ndarray | None,
        tokens: np.ndarray | None,
        logsumexp: Callable[[np.ndarray | None], np.ndarray],
        *,
        dtype: DTypeLike | None = None,
    ) -> np.ndarray:
        """Log-probabilities (q, t) of rows and tokens, all if None, read or computed from states.

        `logsumexp` gives the log-sum-exp of rows (q,), for states. Without a dtype the result has
        the stored one, or float32 from states.
        """
        layout = self.spec.layout
        if layout.width is None:
            return self.read(rows, columns=tokens, dtype=dtype)
        head = self.head()
        states = self.read(rows, dtype=np.float32)
        if tokens is not None and not len(tokens):
            return np.empty((len(states), 0), dtype or layout.row_dtype)
        outputs = head.whole() if tokens is None else head.part(tokens)
        values = subtract_logsumexp(outputs.logits(states), logsumexp(rows))
        return values.astype(dtype or layout.row_dtype, copy=False)

    def _open(self, rows: np.ndarray | None) -> ShardedArray:
        """The array, with the committed digests of the shards of some rows, or all."""
        layout, grid, array = self.spec.layout, self.spec.layout.grid, self.spec.layout.keep.array
        assert grid is not None, "callers check the keep level"
        assert array is not None, "an array has a name"
        metadata = zarrays.rows_metadata(grid, zarrays.AXES[array])
        blocks = range(layout.blocks) if rows is None else np.unique(rows // layout.block_rows)
        digests = self.read_committed(lambda state: shard_digests(self.path, array, state, blocks))
        return ShardedArray.open(objects.plain_path(self.path, array), metadata, grid, digests)


def subtract_logsumexp(logits: np.ndarray, logsumexp: np.ndarray) -> np.ndarray:
    """Subtract a log-sum-exp (q,) float64 from logits (q, v) float32, row by row, in place.

    It subtracts the float32 part and then the rest: as exact as float64, whatever the size of the
    logits, without a copy of twice the size.
    """
    high = logsumexp.astype(np.float32)[:, None]
    low = (logsumexp - high[:, 0]).astype(np.float32)[:, None]
    for start in range(0, len(logits), _ROWS_IN_CACHE):
        rows = slice(start, start + _ROWS_IN_CACHE)
        part = logits[rows]
        part -= high[rows]
        part -= low[rows]
    return logits


def normalise_rows(rows: np.ndarray) -> np.ndarray:
    """x − ln Σ exp(x) of each row x of (q, v), with the sum in float64; −inf stays −inf.

    The result is float32.
    """
    out = np.empty(rows.shape, np.float32)
    for i, row in enumerate(rows):  # in float64 one by one: all at once would take twice the memory
        exact = row.astype(np.float64)
        out[i] = exact - logsumexp(exact)
    return out
