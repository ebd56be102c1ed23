"""Frames whose rows are read when they are asked for, in parts."""

from collections.abc import Callable, Iterator

import polars as pl
from polars.io.plugins import register_io_source

Read = Callable[[list[str], pl.Expr | None, int | None], Iterator[pl.DataFrame]]
"""Reads columns of the rows that a filter leaves, in parts; no more than a number is looked at."""


def io_source(schema: pl.Schema, read: Read, *, is_pure: bool = True) -> pl.LazyFrame:
    """A frame of these columns; columns, filter and number of rows of a query reach `read`.

    Parameters
    ----------
    schema
        Columns that `read` may be asked for.
    read
        May give more rows than the number it is told: they are cut off.
    is_pure
        Whether a query that names the frame twice may read it once.
    """

    def source(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        parts = read(with_columns or schema.names(), predicate, n_rows)
        if n_rows is None:
            yield from parts  # a loop would hold each while the next one is read
            return
        left = n_rows
        for frame in parts:
            yield frame.head(left)
            if (left := left - len(frame)) <= 0:
                return

    return register_io_source(source, schema=schema, is_pure=is_pure)
