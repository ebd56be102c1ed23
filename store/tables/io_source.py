"""Lazy frames whose rows are read in parts when a query is collected."""

from collections.abc import Callable, Iterator

import polars as pl
from polars.io.plugins import register_io_source

Read = Callable[[list[str], pl.Expr | None, int | None], Iterator[pl.DataFrame]]
"""Reads columns of the rows that a filter leaves, in parts; no more than a number is looked at."""


def io_source(schema: pl.Schema, read: Read) -> pl.LazyFrame:
    """A lazy frame that `read` gives in parts, by the columns, filter and rows of a query.

    `schema` has the columns that `read` may be asked for. `read` may give more rows than requested:
    they are cut off. A query with the frame twice may read it once.
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

    return register_io_source(source, schema=schema, is_pure=True)
