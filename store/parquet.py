"""Parquet files of strangers: what Polars raises at them, and how many rows they may claim."""

from pathlib import Path

import polars as pl

from logitbank.errors import DamagedError
from logitbank.store import objects

PARQUET_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What Polars raises at a damaged file."""
_ROWS_A_BYTE = 4
_ROWS_FREE = 100_000


def check_rows(path: Path) -> None:
    """Refuse a file that claims far more rows than its bytes can tell apart.

    Equal rows compress to nothing: 1 MB may claim a thousand million, which would fill the memory.
    Real tables have one row in some ten bytes. Only the footer is read.

    Raises
    ------
    DamagedError
        It does, or is no file.
    """
    objects.require_file(path)
    rows = pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()
    if rows > _ROWS_FREE + _ROWS_A_BYTE * path.stat().st_size:
        raise DamagedError(
            f"{path} claims {rows:,} rows in {path.stat().st_size:,} bytes; do not trust it"
        )
