"""Parquet files of strangers: what Polars raises at them, and how many rows they may claim."""

from pathlib import Path

import polars as pl

from logitbank.errors import DamagedError
from logitbank.store.files import objects

PARQUET_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What Polars raises at a damaged file."""
# Equal rows compress to nothing: 1 MB may claim a thousand million, which would fill the memory.
# Real tables have one row in some ten bytes.
_ROWS_A_BYTE = 4
_ROWS_FREE = 100_000


def check_rows(*paths: Path) -> None:
    """Refuse files that claim far more rows than their bytes can tell apart.

    Only the footers are read.

    Raises
    ------
    DamagedError
        It does, or is no file.
    """
    for path in paths:
        objects.require_file(path)
    # All at once takes a fifth of the time. Which columns they have is not asked here.
    all_at_once = pl.scan_parquet(
        [*paths], glob=False, extra_columns="ignore", missing_columns="insert"
    )
    rows = all_at_once.select(pl.len()).collect().item()
    if rows <= sum(map(_most_rows, paths)):
        return
    for path in paths:
        if len(paths) > 1:
            check_rows(path)
        else:
            raise DamagedError(
                f"{path} claims {rows:,} rows in {path.stat().st_size:,} bytes; do not trust it"
            )


def _most_rows(path: Path) -> int:
    return _ROWS_FREE + _ROWS_A_BYTE * path.stat().st_size
