"""Rows and tokens that a caller asks for, checked against a deposit's sizes and commits."""

from collections.abc import Collection

import numpy as np
from numpy.typing import ArrayLike

from logitbank.errors import BankError, UsageError
from logitbank.store.format.layout import Layout


def index_of(name: str, values: ArrayLike, length: int) -> np.ndarray:
    """Rows or tokens as an index into an axis of `length`.

    Raises UsageError: they are no list of whole numbers, or one is outside the axis.
    """
    index = np.asarray(values)
    if index.ndim != 1 or not (np.issubdtype(index.dtype, np.integer) or index.size == 0):
        raise UsageError(
            f"{name}s must be a list of whole numbers; got shape {index.shape}, {index.dtype}"
        )
    index = index.astype(np.int64)
    outside = index[(index < 0) | (index >= length)]
    if len(outside):
        raise UsageError(f"{name} {outside[0]} is not in the deposit; use 0 to {length - 1:,}")
    return index


def require_committed(
    deposit: object, layout: Layout, committed: Collection[int], rows: np.ndarray | None
) -> None:
    """Refuse to read rows, or all, of which some are in no committed block.

    Raises BankError: the message names the deposit and the rows.
    """
    missing = sorted(set(range(layout.blocks)).difference(committed))
    if rows is None:
        absent, requested = sum(len(layout.rows(block)) for block in missing), layout.queries
    else:
        absent = int(np.isin(rows // layout.block_rows, missing).sum())
        requested = len(rows)
    if absent:
        spans = ", ".join(f"{span.start}–{span.stop - 1}" for span in map(layout.rows, missing[:5]))
        more = ", …" if len(missing) > 5 else ""
        raise BankError(
            f"{deposit}: {absent:,} of {requested:,} rows asked for are not there yet"
            f" (the bank lacks rows {spans}{more}); run `logitbank extract` again to finish"
        )
