"""Parquet files, which may be damaged or hostile: errors of Polars, and limits of rows."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.errors import DamagedError
from logitbank.store.files import objects, verified
from logitbank.store.format import pages

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
MAX_VALUES = 2**28
"""Values of all lists of a column. 16,000 positions of one text have 256 million token ids."""
MAX_PAGE = 2**29
"""Bytes of one page after decompression. A group of rows has at most 128 MB of texts."""
_A_BYTE = 1024
"""Further bytes of texts for each byte of the table."""


def _check_texts(path: Path) -> None:
    """Refuse a table whose texts are larger than they may be, without keeping them in memory.

    Polars decodes equal texts as references to one, but Python and joins repeat them.
    """
    texts = pl.scan_parquet(path, glob=False).select(pl.col(pl.String).str.len_bytes())
    sizes = texts.select(
        longest=pl.max_horizontal(pl.all().max()),
        total=pl.sum_horizontal(pl.all().cast(pl.Int64).sum()),
    )
    if not texts.collect_schema():
        return
    longest, total = sizes.collect(engine="streaming").row(0)
    _require(path, "a text of", longest or 0, MAX_TEXT)
    _require(path, "texts of", total or 0, MAX_TEXTS + _A_BYTE * path.stat().st_size)


def _require(path: Path, what: str, size: int, most: int) -> None:
    if size > most:
        raise DamagedError(f"{path} has {what} {size:,} bytes. The maximum is {most:,}.")


def check_size(path: Path, most: MostRows = SCORES) -> None:
    """Refuse a file that claims more rows, values or texts than it may have, before it is read.

    Every reader of one file calls this first. A file that has not changed is looked at once.
    Raises DamagedError.
    """
    objects.require_file(path)
    stamp = verified.file_stamp(path)
    check = _check_size if stamp.settled else _check_size.__wrapped__
    check(path, stamp, most)


@lru_cache(maxsize=2**14)
def _check_size(path: Path, stamp: verified.Stamp, most: MostRows) -> None:
    try:
        claims = pages.claims(path)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        check_rows(path, most=most)  # Polars may say more
        raise DamagedError(f"{path} is not a Parquet file ({error}).") from error
    rows = most.free + most.a_byte * stamp.size
    if claims.rows > rows:
        raise DamagedError(f"{path} claims {claims.rows:,} rows in {stamp.size:,} bytes")
    for column in claims.columns:
        most_values = MAX_VALUES if "." in column.name else rows
        if column.values > most_values:
            raise DamagedError(
                f"{path} claims {column.values:,} values of {column.name} in {stamp.size:,} bytes."
                f" The maximum is {most_values:,}."
            )
        _require(path, f"a page of {column.name} that claims", column.page_bytes, MAX_PAGE)
    # No text is longer than its page, so most files need not be measured.
    if sum(column.values * column.page_bytes for column in claims.columns) > MAX_TEXT:
        _check_texts(path)


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
