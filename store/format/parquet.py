"""Parquet files, which may be damaged or hostile: errors of Polars, and limits of rows."""

from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.errors import DamagedError
from logitbank.store.files import objects

PARQUET_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What Polars raises for a damaged file."""


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
