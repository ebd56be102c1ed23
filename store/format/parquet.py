"""Parquet files, which may be damaged or hostile: errors of Polars, and limits of rows."""

from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.errors import DamagedError
from logitbank.store.files import objects

PARQUET_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""Errors of Polars for a damaged file."""


class MostRows(NamedTuple):
    """Rows that a file may claim.

    Equal rows compress to nothing: 1 MB may claim a thousand million, which would fill the memory.
    """

    free: int
    """Rows of a file of any size."""
    a_byte: int
    """Further rows for each of its bytes. Scores have one row in about ten bytes."""


SCORES = MostRows(100_000, 4)
PROMPTS = MostRows(4_000_000, 32)
"""A thousand options of each of 5,000 prompts are 11 rows a byte."""


MAX_TEXT = 2**24
"""Bytes of one text in a table."""
MAX_TEXTS = 2**32
"""Bytes of all texts of a table of any size. Equal texts compress to nothing."""
_A_BYTE = 1024
"""Further bytes of texts for each byte of the table."""


def check_texts(path: Path) -> None:
    """Refuse a table whose texts are larger than they may be, without keeping them in memory."""
    texts = pl.scan_parquet(path, glob=False).select(pl.col(pl.String).str.len_bytes())
    sizes = texts.select(
        longest=pl.max_horizontal(pl.all().max()),
        total=pl.sum_horizontal(pl.all().cast(pl.Int64).sum()),
    )
    longest, total = sizes.collect(engine="streaming").row(0)
    _require(path, "a text of", longest or 0, MAX_TEXT)
    _require(path, "texts of", total or 0, MAX_TEXTS + _A_BYTE * path.stat().st_size)


def _require(path: Path, what: str, size: int, most: int) -> None:
    if size > most:
        raise DamagedError(f"{path} has {what} {size:,} bytes. The maximum is {most:,}.")


def check_rows(*paths: Path, most: MostRows = SCORES) -> None:
    """Refuse folders, and files that claim far more rows than their bytes can contain.

    Only the footers are read.
    """
    for path in paths:
        objects.require_file(path)
    # One scan takes a fifth of the time that one for each file takes.
    all_at_once = pl.scan_parquet(
        [*paths], glob=False, extra_columns="ignore", missing_columns="insert"
    )
    rows = all_at_once.select(pl.len()).collect().item()
    if rows <= sum(most.free + most.a_byte * path.stat().st_size for path in paths):
        return
    for path in paths if len(paths) > 1 else ():
        check_rows(path, most=most)
    if len(paths) == 1:
        raise DamagedError(f"{path} claims {rows:,} rows in {path.stat().st_size:,} bytes")
