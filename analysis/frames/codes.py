"""Rows as small integers: distinct rows, the index of each row among them, and sums by index."""

from collections.abc import Sequence
from typing import Any, NamedTuple

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


def numbers_among(column: pl.Series, names: Sequence[str]) -> Codes:
    """The index of each text of a column among different names.

    >>> numbers_among(pl.Series(["b", "a", "b"]), ["a", "b"]).tolist()
    [1, 0, 1]
    """
    numbers: Codes = column.cast(pl.Enum(names)).to_physical().cast(pl.Int64).to_numpy()
    return numbers


class Groups:
    """Sums and means of the columns of arrays (c, n) by group, each (c, g).

    >>> groups = Groups(np.array([2, 0, 2]), 3)
    >>> values = np.array([[1.0, 2.0, np.nan]])
    >>> groups.total(values).tolist(), groups.mean(values).tolist()
    ([[2.0, 0.0, nan]], [[2.0, nan, 1.0]])
    """

    def __init__(self, codes: Codes, number: int) -> None:
        """`codes` (n,) are the groups of columns; `number` is g."""
        self._number = number
        self._order = np.argsort(codes, kind="stable")
        self._starts = np.flatnonzero(np.diff(codes[self._order], prepend=-1))
        self._present = codes[self._order][self._starts]
        self.sizes = np.bincount(codes, minlength=number)
        """(g,) number of columns."""

    def total(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Sums, NaN where a value is."""
        totals = np.zeros((len(values), self._number))
        ordered = values[:, self._order].astype(np.float64, copy=False)
        totals[:, self._present] = np.add.reduceat(ordered, self._starts, axis=1)
        return totals

    def greatest(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The greatest value, NaN where one is, and of no columns."""
        greatest = np.full((len(values), self._number), np.nan)
        ordered = values[:, self._order]
        greatest[:, self._present] = np.maximum.reduceat(ordered, self._starts, axis=1)
        return greatest

    def sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums of the values that are there, NaN for none."""
        known = ~np.isnan(values)
        return np.where(self.total(known) > 0, self.total(np.where(known, values, 0)), np.nan)

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Means of the values that are there, NaN for none."""
        number = np.maximum(self.total(~np.isnan(values)), 1)
        return np.asarray(self.sum(values) / number)


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
