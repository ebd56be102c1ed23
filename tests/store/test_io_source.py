"""Frames that are read in parts: what is given is let go before more is read."""

import weakref
from collections.abc import Iterator

import polars as pl

from logitbank.store.tables.io_source import io_source


def test_a_part_is_let_go_before_the_next_one_is_read() -> None:
    given: list[weakref.ref[pl.DataFrame]] = []
    held: list[int] = []

    def part(value: int) -> pl.DataFrame:
        held.append(sum(frame() is not None for frame in given))
        frame = pl.DataFrame({"a": [value]})
        given.append(weakref.ref(frame))
        return frame

    def read(
        columns: list[str], predicate: pl.Expr | None, n_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        yield from (part(value) for value in range(4))

    frame = io_source(pl.Schema({"a": pl.Int64}), read)
    assert frame.select(pl.col("a").sum()).collect().item() == 6
    assert held == [0, 0, 0, 0]
    assert frame.head(2).collect()["a"].to_list() == [0, 1]
