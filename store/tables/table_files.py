"""Parquet tables as files of a bank: written once, with the digest of their bytes beside them."""

import io
import re
from pathlib import Path

import polars as pl

from logitbank.errors import DamagedError
from logitbank.store.files import disk, locks, objects, verified
from logitbank.store.files.objects import Digest
from logitbank.store.format.parquet import PARQUET_ERRORS, MostRows, check_rows

GROUP_BYTES = 2**27
"""Of the texts in a group of rows, where those of a table are more."""
_SIDECAR = re.compile(r"([0-9a-f]{64})  (.+)\n")


def write_table(root: Path, path: Path, frame: pl.DataFrame, metadata: dict[str, str]) -> None:
    """Put a frame into a bank as a Parquet file; a present one stays."""
    buffer = io.BytesIO()
    frame.write_parquet(
        buffer, compression="zstd", metadata=metadata, row_group_size=_rows_together(frame)
    )
    put_table(root, path, buffer.getvalue())


def _rows_together(frame: pl.DataFrame) -> int | None:
    """Rows of a group, which are laid out in memory when they are written; None for the usual.

    A text of 80 kB that stands in 16,000 rows is once in memory and once in a group, but 1.3 GB
    where the rows of a group are laid out.
    """
    texts = frame.select(pl.col(pl.String).str.len_bytes().sum())
    total = sum(sum(row) for row in texts.rows())
    return None if total <= GROUP_BYTES else max(1, len(frame) * GROUP_BYTES // total)


def put_table(root: Path, path: Path, data: bytes) -> None:
    """Put a Parquet file into a bank, with the digest of its bytes beside; a present one stays."""
    objects.make_folders(root, path.parent)
    digest = objects.digest_of(data).sha256
    with disk.naming_full(path, len(data)), locks.locked(root / ".lock"):
        if not path.exists():
            beside = digest_file(path)
            beside.unlink(missing_ok=True)
            # The digest comes first: without a table it says nothing.
            objects.write_new(beside, f"{digest}  {path.name}\n".encode())
            objects.write_new(path, data)


def digest_file(table: Path) -> Path:
    """Where the digest of a table's bytes is, in the form that `sha256sum --check` reads."""
    return table.with_name(f"{table.name}.sha256")


def recorded_digest(table: Path) -> str:
    """The digest of a table's bytes, as the file beside it tells it.

    Raises DamagedError: there is none, or it is of another table.
    """
    beside = digest_file(table)
    again = "run `logitbank verify --repair`, which makes it again if the table is sound"
    objects.require_file(beside)
    try:
        line = _SIDECAR.fullmatch(beside.read_bytes().decode(errors="replace"))
    except FileNotFoundError as error:
        raise DamagedError(f"{beside} is not there, so nothing vouches for it; {again}") from error
    if line is None or line[2] != table.name:
        raise DamagedError(f"{beside} is no line of sha256sum for that table; {again}")
    return line[1]


def require_sound(table: Path) -> None:
    """Refuse a table whose bytes are not those that the digest beside it is of.

    Raises FileNotFoundError: it is not there.
    Raises DamagedError: they are others, or nothing vouches for them.
    """
    size = table.stat().st_size  # which a sidecar does not tell
    verified.require({table: Digest(recorded_digest(table), size)})


def schema_of(path: Path, *, what: str, most: MostRows) -> pl.Schema:
    """Columns and types of a table with at most so many rows; its bytes are checked.

    Raises DamagedError: it is none; `what` says what it should be.
    """
    require_sound(path)
    try:
        check_rows(path, most=most)
        return pl.scan_parquet(path, glob=False).collect_schema()
    except (*PARQUET_ERRORS, OSError) as error:
        raise DamagedError(f"{path} is no {what} ({error}); run `logitbank verify`") from error


def require_columns(path: Path, columns: pl.Schema, schema: pl.Schema, what: str) -> None:
    """Refuse a table that lacks a column, as damage."""
    if missing := [column for column in schema if column not in columns]:
        raise DamagedError(f"{path} is no {what}: it has no {missing[0]}; run `logitbank verify`")
