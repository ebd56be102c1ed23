"""Parquet tables of a bank: written once, with the digest of their bytes in a file beside them."""

import hashlib
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import polars as pl

from logitbank.errors import DamagedError
from logitbank.store.files import disk, locks, objects, verified
from logitbank.store.files.objects import Digest
from logitbank.store.format.parquet import PARQUET_ERRORS, PROMPTS, check_size
from logitbank.store.format.schema import canonical_json

GROUP_BYTES = 2**27
"""Largest bytes of texts in a group of rows."""
TABLE_FILE = re.compile(r"(.+)-([0-9a-f]{12})\.parquet")
_VALUES = 1_000
_TEXT_BYTES = 2**24
"""Values whose digest is computed at once, and about the bytes of their texts."""
_SIDECAR = re.compile(r"([0-9a-f]{64})  (.+)\n")


class TableFile(NamedTuple):
    """A table of prompts or of tokens in a bank."""

    name: str
    """Prompt set, or digest of the tokenizer."""
    digest: str
    """SHA-256 of the content."""
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
        # The JSON of [[name, type, [value, ...]], ...], some values at a time: a million prompts
        # have half a GB of JSON, and more as values in Python.
        head = canonical_json([column.name, str(column.dtype)])
        content.update(f"{',' if at else '['}{head[:-1]},[".encode())
        for start, end in _spans(column):
            content.update(b"," if start else b"")
            content.update(canonical_json(column[start:end].to_list())[1:-1].encode())
        content.update(b"]]")
    content.update(b"]" if table.width else b"[]")
    return content.hexdigest()[:12]


def _spans(column: pl.Series) -> Iterator[tuple[int, int]]:
    """Divide a column into parts of at most `_VALUES` values and about `_TEXT_BYTES` of texts."""
    for start in range(0, len(column), _VALUES):
        end, step = min(start + _VALUES, len(column)), _VALUES
        if column.dtype == pl.String:
            texts = column[start:end].to_frame()
            longest = texts.select(pl.all().str.len_bytes().max()).item() or 0
            step = max(1, min(_VALUES, _TEXT_BYTES // max(longest, 1)))
        for first in range(start, end, step):
            yield first, min(first + step, end)


def write_table(
    root: Path,
    path: Path,
    frame: pl.DataFrame,
    metadata: dict[str, str],
    check: Callable[[], object] = lambda: None,
) -> None:
    """Store a frame as a Parquet file of a bank; an existing file stays.

    `check` is called under the lock of the bank's tables: what it refuses is not written.
    """
    buffer = io.BytesIO()
    frame.write_parquet(
        buffer, compression="zstd", metadata=metadata, row_group_size=_group_rows(frame)
    )
    _put_table(root, path, buffer.getvalue(), check)


def _group_rows(frame: pl.DataFrame) -> int | None:
    """Rows of a group of `GROUP_BYTES` of texts; None for the default.

    Polars lays out the texts of a group in memory: 1.3 GB for 80 kB in 16,000 rows.
    """
    texts = frame.select(pl.col(pl.String).str.len_bytes().sum())
    total = sum(sum(row) for row in texts.rows())
    return None if total <= GROUP_BYTES else max(1, len(frame) * GROUP_BYTES // total)


def _put_table(root: Path, path: Path, data: bytes, check: Callable[[], object]) -> None:
    """Store the bytes of a Parquet file with their digest beside; an existing file stays."""
    objects.make_folders(root, path.parent)
    digest = objects.compute_digest(data).sha256
    with disk.naming_full(path, len(data)), locks.locked(root / ".lock"):
        if not path.exists():
            check()
            beside = digest_file(path)
            beside.unlink(missing_ok=True)
            # The digest first: readers ignore it without a table.
            write_digest(path, digest)
            objects.write_new(path, data)


def write_digest(table: Path, digest: str) -> None:
    """Write the file with the digest of a table's bytes."""
    objects.write_new(digest_file(table), f"{digest}  {table.name}\n".encode())


def digest_file(table: Path) -> Path:
    """File with the digest of a table's bytes, in the form of `sha256sum --check`."""
    return table.with_name(f"{table.name}.sha256")


def recorded_digest(table: Path) -> str:
    """The digest of a table's bytes in the file beside it, or DamagedError."""
    sidecar = digest_file(table)
    advice = "Run `logitbank verify --repair`, which writes it again if the table is sound."
    objects.require_file(sidecar)
    try:
        line = _SIDECAR.fullmatch(sidecar.read_bytes().decode(errors="replace"))
    except FileNotFoundError as error:
        raise DamagedError(f"{sidecar} is missing. {advice}") from error
    if line is None or line[2] != table.name:
        raise DamagedError(f"{sidecar} is not a line of sha256sum for that table. {advice}")
    return line[1]


def require_sound(table: Path) -> None:
    """Refuse a table whose bytes differ from the digest beside it, or that has none."""
    size = table.stat().st_size  # the sidecar does not name it
    verified.require({table: Digest(recorded_digest(table), size)})


def scan_table(path: Path, schema: pl.Schema, kind: str) -> pl.LazyFrame:
    """A table with these columns that is read later; its bytes are checked now. DamagedError."""
    require_sound(path)
    try:
        check_size(path, PROMPTS)
        columns = pl.scan_parquet(path, glob=False).collect_schema()
    except (*PARQUET_ERRORS, OSError) as error:
        raise DamagedError(f"{path} is not a {kind} ({error}); run `logitbank verify`") from error
    if missing := [column for column in schema if column not in columns]:
        raise DamagedError(
            f"{path} is not a {kind}: column {missing[0]} is missing; run `logitbank verify`"
        )
    return pl.scan_parquet(path, glob=False)
