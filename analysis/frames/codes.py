"""Rows as small integers: the distinct rows, and the index of each row among them."""

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

Codes = NDArray[np.int64]
_DENSE = 2**22
"""Largest range of codes for which a table of all codes is faster than sorting the rows."""
_WIDE = 2**14
"""Largest code of a column that is not compressed."""


class Coded(NamedTuple):
    """Distinct rows of a frame."""

    rows: Codes
    """(n,) index of one row for each of the n distinct ones, in no fixed order."""
    codes: Codes
    """Index into `rows` for each row of the frame."""


def distinct(frame: pl.DataFrame) -> Coded:
    """Distinct rows of columns of any ordered type, such as text; null is a value.

    Half a million rows of four columns take 0.03 s; `DataFrame.unique` and a join take 0.3 s.

    >>> table = pl.DataFrame({"a": ["x", "y", "x"], "b": [1, None, 1]})
    >>> coded = distinct(table)
    >>> table[coded.rows][coded.codes].equals(table), len(coded.rows)
    (True, 2)
    """
    if frame.is_empty():
        return Coded(np.zeros(0, np.int64), np.zeros(0, np.int64))
    codes = np.zeros(len(frame), np.int64)
    for column in frame:
        values = _integers(column)
        if values is None:  # a constant
            continue
        largest = int(values.max())
        if largest > _WIDE:  # training steps: few, but of any size
            values = _compressed(values)
            largest = int(values.max())
        codes = _compressed(codes * (largest + 1) + values)
    rows = np.empty(int(codes.max()) + 1, np.int64)
    rows[codes] = np.arange(len(codes))
    return Coded(rows, codes)


def _integers(column: pl.Series) -> Codes | None:
    """Codes from 1, and 0 for null; None for a constant column."""
    if column.dtype == pl.String:
        column = column.cast(pl.Categorical)
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.to_physical()
    elif not (column.dtype.is_integer() or column.dtype == pl.Boolean):
        column = column.rank("dense").cast(pl.Int64)
    lowest, missing = column.min(), column.null_count()
    if missing == len(column) or (not missing and lowest == column.max()):
        return None
    assert isinstance(lowest, int)
    shifted: Codes = (column.cast(pl.Int64) - (lowest - 1)).fill_null(0).to_numpy()
    return shifted


def _compressed(codes: Codes) -> Codes:
    """Equivalent codes from 0 to one less than their number."""
    size = int(codes.max()) + 1
    if size > _DENSE:
        return np.unique(codes, return_inverse=True)[1].astype(np.int64)
    seen = np.zeros(size, bool)
    seen[codes] = True
    present = np.flatnonzero(seen)
    position = np.empty(size, np.int64)
    position[present] = np.arange(len(present))
    compressed: Codes = position[codes]
    return compressed
