"""Rows of a deposit: stored log-probabilities, or those computed from states and their head."""

from collections.abc import Callable, Iterable
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
from logitbank.store.format.layout import DepositSpec, Layout
from logitbank.store.format.numbers import as_float32, logsumexp
from logitbank.store.heads.stored import StoredHead, require_head

Retrying = Callable[[Callable[[Committed], dict[int, Digest]]], dict[int, Digest]]
"""Calls what it is given with what is committed, again where a seal came between."""

_AT_ONCE = 4
"""Rows that stay in a core's cache between two steps."""
_IN_MEMORY = 128
"""Rows that are normalised at once: those of one inner chunk."""


@dataclass(frozen=True)
class RowReader:
    """Reads the arrays that the blocks of one deposit have beside their scores."""

    path: Path
    """Of the deposit."""
    spec: DepositSpec
    retrying: Retrying

    @property
    def bank(self) -> Path:
        """The bank's folder: a deposit is `<bank>/<model>/<run>/<step>/<query set>`."""
        return self.path.parents[3]

    @property
    def layout(self) -> Layout:
        return self.spec.layout

    def require_whole(self, deposit: object) -> None:
        """Refuse a deposit without full rows or states; the message names the deposit."""
        if not self.layout.keep.whole_rows:
            raise KeepLevelError(
                f"{deposit} keeps {self.layout.keep}, not full vocabulary rows; ask for listed"
                " tokens with scores(), or extract again with --keep full, hidden or auto into"
                " another bank; the column keep of info() says which checkpoints have full rows"
            )

    def require_states(self, deposit: object) -> None:
        """Refuse a deposit without states; the message names the deposit."""
        if self.layout.width is None:
            raise KeepLevelError(
                f"{deposit} keeps {self.layout.keep}, not the states that its head multiplies;"
                " extract again with --keep hidden into another bank"
            )

    def head(self) -> StoredHead:
        """The head of the states, or DamagedError if it is missing or does not fit."""
        ((kind, digest),), width = self.spec.heads.items(), self.layout.width
        assert width is not None, f"there are states where there is a {kind} head"
        return require_head(
            self.bank,
            digest,
            outputs=self.layout.vocab,
            width=width,
            needed_by=f"{self.spec.checkpoint}, {self.spec.query_set}",
        )

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
        stored = self._open(rows)
        if self.layout.dtype == "bfloat16":
            bits = stored.read(rows, columns, dtype=stored.grid.dtype)
            return as_float32(bits).astype(dtype or np.float32, copy=False)
        return stored.read(rows, columns, dtype=self.layout.dtype if dtype is None else dtype)

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
        if self.layout.width is None:
            return self.read(rows, columns=tokens, dtype=dtype)
        head = self.head()
        states = self.read(rows, dtype=np.float32)
        if tokens is not None and not len(tokens):
            return np.empty((len(states), 0), dtype or self.layout.row_dtype)
        some = head.whole() if tokens is None else head.part(tokens)
        values = less(some.logits(states), logsumexp(rows))
        return values.astype(dtype or self.layout.row_dtype, copy=False)

    def check_sizes(self, blocks: Iterable[int]) -> None:
        """Refuse shards of these blocks with another size than the committed one."""
        first = np.array([self.layout.rows(block).start for block in sorted(blocks)], np.int64)
        self._open(first).check_sizes()

    def _open(self, rows: np.ndarray | None) -> ShardedArray:
        """The array, with the committed digests of the shards of some rows, or all."""
        layout, grid, array = self.layout, self.layout.grid, self.layout.keep.array
        assert grid is not None, "callers look at the keep level"
        assert array is not None, "an array has a name"
        metadata = zarrays.rows_metadata(grid, zarrays.AXES[array])
        blocks = range(layout.blocks) if rows is None else np.unique(rows // layout.block_rows)
        digests = self.retrying(lambda state: shard_digests(self.path, array, state, blocks))
        path = objects.plain_path(self.path, array)
        return ShardedArray.open(path, metadata, grid, digests)


def less(logits: np.ndarray, logsumexp: np.ndarray) -> np.ndarray:
    """Subtract a log-sum-exp (q,) float64 from logits (q, v) float32, row by row, in place.

    It subtracts the float32 part and then the rest: as exact as float64, whatever the size of the
    logits, without a copy of twice the size.
    """
    high = logsumexp.astype(np.float32)[:, None]
    low = (logsumexp - high[:, 0]).astype(np.float32)[:, None]
    for start in range(0, len(logits), _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        some = logits[rows]
        some -= high[rows]
        some -= low[rows]
    return logits


def normalised(
    read: Callable[[np.ndarray], np.ndarray],
    rows: np.ndarray,
    tokens: np.ndarray | None,
    *,
    vocab: int,
) -> np.ndarray:
    """x − ln Σ exp(x) of each row x, the sum over all its outputs and in float64.

    Parameters
    ----------
    read
        Gives whole rows, (n, v), of those that it is called with.
    rows
        (q,) in any order.
    tokens
        Which outputs to give, (t,); all `vocab` if None. Nothing else depends on them.

    Returns
    -------
    (q, t) float32 nats. −inf stays −inf and adds nothing to the sum.
    """
    out: np.ndarray | None = None
    order = np.argsort(rows, kind="stable")  # so that an inner chunk is decoded once
    for places in np.split(order, np.flatnonzero(np.diff(rows[order] // _IN_MEMORY)) + 1):
        if not len(places):
            continue
        distinct, which = np.unique(rows[places], return_inverse=True)
        whole = read(distinct)
        for at, stored in enumerate(whole):
            values = stored.astype(np.float64)
            values -= logsumexp(values)
            values = values if tokens is None else values[tokens]
            if out is None:  # not before: a row that was read bears out what a stranger claims
                out = np.empty((len(rows), len(values)), np.float32)
            out[places[which == at]] = values
    return (
        np.empty((0, vocab if tokens is None else len(tokens)), np.float32) if out is None else out
    )
