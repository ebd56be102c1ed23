"""Parquet files of strangers: what Polars raises at them, and how many rows they may claim."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.errors import DamagedError
from logitbank.store.files import objects

PARQUET_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What Polars raises at a damaged file."""
# Equal rows compress to nothing: 1 MB may claim a thousand million, which would fill the memory.
# Scores have one row in some ten bytes.


class MostRows(NamedTuple):
    """How many rows a file may claim."""

    free: int
    """Whatever its size."""
    a_byte: int
    """And so many for each of its bytes."""


SCORES = MostRows(100_000, 4)
PROMPTS = MostRows(4_000_000, 32)
"""A thousand options of each of 5,000 prompts are 11 rows a byte, each some 50 bytes in memory."""


def check_rows(*paths: Path, most: MostRows = SCORES) -> None:
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
    if rows <= sum(most.free + most.a_byte * path.stat().st_size for path in paths):
        return
    for path in paths:
        if len(paths) > 1:
            check_rows(path, most=most)
        else:
            raise DamagedError(
                f"{path} claims {rows:,} rows in {path.stat().st_size:,} bytes; do not trust it"
            )


def footer(path: Path) -> bytes:
    """The end of a file: its footer, the footer's length, and the mark of the format.

    Raises
    ------
    DamagedError
        The footer would begin before the file.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(handle).st_size
        length = 8 + int.from_bytes(os.pread(handle, 8, max(0, size - 8))[:4], "little")
        if length > size:
            raise DamagedError(f"{path} is shorter than its footer; do not trust it")
        return os.pread(handle, length, size - length)
    finally:
        os.close(handle)


def row_counts(files: Sequence[bytes], sizes: Sequence[int] | None = None) -> list[int]:
    """How many rows each of some files claims; refused as by `check_rows`.

    Parameters
    ----------
    files
        Whole, or the end of each, as `footer` gives it.
    sizes
        Bytes of each whole file, where these are ends.

    A footer begins with a version, a schema and that number. Those of one writer begin alike, so
    that one is parsed: 5,000 take 3 ms, and Polars 100, which tells the same number of all at once.

    Raises
    ------
    DamagedError
        They claim far too many, or one is no Parquet file.
    """
    counts, beginning = [], b""
    try:
        for data in files:
            at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
            if not beginning or not data.startswith(beginning, at):
                beginning = data[at : _past_schema(data[:-8], at)]
            counts.append(_varint(data, at + len(beginning))[0] >> 1)  # zigzag of what is not < 0
    except (IndexError, RecursionError) as error:
        raise DamagedError("a footer ends before it tells how many rows there are") from error
    sizes = [len(data) for data in files] if sizes is None else sizes
    if sum(counts) > sum(SCORES.free + SCORES.a_byte * size for size in sizes):
        raise DamagedError(f"{len(files):,} files claim {sum(counts):,} rows; do not trust them")
    return counts


# Thrift's compact protocol, as far as the members before the number of rows go.
_FLAGS, _BYTE, _NUMBERS, _TEXT, _LIST, _STRUCT = (1, 2), 3, (4, 5, 6), 8, 9, 12


def _past_schema(data: bytes, at: int) -> int:
    """Where a footer's third member is."""
    member = 0
    while (header := data[at]) >> 4:
        member += header >> 4
        if member == 3:
            return at + 1
        at = _skip(data, at + 1, header & 15)
    raise DamagedError("a footer tells nowhere how many rows there are")


def _skip(data: bytes, at: int, kind: int) -> int:
    """The place after a value."""
    if kind in _FLAGS:  # said by the header
        return at
    if kind == _BYTE:
        return at + 1
    if kind in _NUMBERS:
        return _varint(data, at)[1]
    if kind == _TEXT:
        length, at = _varint(data, at)
        return at + length
    if kind == _LIST:
        count, inner = data[at] >> 4, data[at] & 15
        count, at = _varint(data, at + 1) if count == 15 else (count, at + 1)
        if count > len(data):
            raise IndexError
        for _ in range(count):
            at = _skip(data, at, inner)
        return at
    if kind == _STRUCT:
        while (header := data[at]) >> 4:
            at = _skip(data, at + 1, header & 15)
        return at + 1
    raise DamagedError(f"a footer has a value of kind {kind} before its number of rows")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and the place after it."""
    value = shift = 0
    while (byte := data[at]) > 127:
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
    return value | byte << shift, at + 1
