"""Parquet tables of a bank: written once, with the digest of their bytes beside them."""

import hashlib
import io
import re
from itertools import repeat
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import polars as pl

from logitbank.errors import DamagedError
from logitbank.store.files import disk, locks, objects, verified
from logitbank.store.files.objects import Digest
from logitbank.store.format.parquet import PARQUET_ERRORS, MostRows, check_rows
from logitbank.store.format.schema import canonical_json

GROUP_BYTES = 2**27
"""Of the texts in a group of rows, where those of a table are more."""
TABLE_FILE = re.compile(r"(.+)-([0-9a-f]{12})\.parquet")
_VALUES = 1_000
_SIDECAR = re.compile(r"([0-9a-f]{64})  (.+)\n")


class TableFile(NamedTuple):
    """A table of prompts or of tokens in a bank."""

    name: str
    """Prompt set, or digest of the tokenizer."""
    digest: str
    """Of its content."""
    path: Path


def named_files(root: Path, folder: str) -> list[TableFile]:
    """The tables of a folder, by name and digest."""
    return sorted(
        TableFile(unquote(match[1]), match[2], Path(entry.path))
        for entry in objects.entries(root / folder)
        if (match := TABLE_FILE.fullmatch(entry.name))
    )


def require_content(path: Path, table: pl.DataFrame) -> None:
    """Refuse a table whose content differs from the digest in its file name, as damage."""
    digest, match = content_digest(table), TABLE_FILE.fullmatch(path.name)
    if match is None or digest != match[2]:
        raise DamagedError(f"its content has the digest {digest}")


def content_digest(table: pl.DataFrame) -> str:
    """12 hex digits that name a table of prompts or tokens: columns, types and values, in order."""
    content = hashlib.sha256()
    for at, column in enumerate(table.get_columns()):
        # The JSON of [[name, type, [value, ...]], ...], some values at a time: of a million prompts
        # it is half a GB, and its values in Python are more.
        head = canonical_json([column.name, str(column.dtype)])
        content.update(f"{',' if at else '['}{head[:-1]},[".encode())
        for start in range(0, len(column), _VALUES):
            content.update(b"," if start else b"")
            content.update(_listed(column[start : start + _VALUES]))
        content.update(b"]]")
    content.update(b"]" if table.width else b"[]")
    return content.hexdigest()[:12]


def _listed(values: pl.Series) -> bytes:
    """The JSON of values, without the brackets around them.

    A text that stands in many rows is written once and repeated: of 80 kB in 16,000 rows, which
    are 1.3 GB of JSON, the digest takes 1.1 s in place of 6.
    """
    if values.dtype == pl.String:
        runs = values.rle().struct.unnest()
        if 2 * len(runs) <= len(values):
            return b",".join(
                text
                for count, value in runs.iter_rows()
                for text in repeat(canonical_json(value).encode(), count)
            )
    return canonical_json(values.to_list())[1:-1].encode()


def write_table(root: Path, path: Path, frame: pl.DataFrame, metadata: dict[str, str]) -> None:
    """Store a frame as a Parquet file of a bank; an existing file stays."""
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
    """Store the bytes of a Parquet file with their digest beside; an existing file stays."""
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
    """File with the digest of a table's bytes, in the form of `sha256sum --check`."""
    return table.with_name(f"{table.name}.sha256")


def recorded_digest(table: Path) -> str:
    """The digest of a table's bytes in the file beside it, or DamagedError."""
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
    """Refuse a table whose bytes differ from the digest beside it, or that has none."""
    size = table.stat().st_size  # which a sidecar does not tell
    verified.require({table: Digest(recorded_digest(table), size)})


def schema_of(path: Path, *, what: str, most: MostRows) -> pl.Schema:
    """Columns and types of a verified table of at most so many rows, or DamagedError."""
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
