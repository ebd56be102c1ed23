"""Copy what is committed from one bank into another: bytes with their digests checked on the way.

Sources are banks of strangers and are only read: no path outside them is followed, nothing is taken
that the format does not name, and nothing is believed that is not recomputed.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.errors import BankError, DamagedError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.deposits.scores import VERIFY
from logitbank.store.files import objects
from logitbank.store.files.objects import Digest
from logitbank.store.tables import (
    prompt_checks,
    prompt_tables,
    query_tables,
    table_files,
    token_texts,
)

Progress = Callable[[int, int], None]
"""Called with how much is done, in bytes or rows, and how much there is."""
_PIECE = 4 * 2**20


def counting(total: int, progress: Progress | None) -> Callable[[int], None]:
    """What is called with each further part that is done, and says so to `progress`."""
    done = 0

    def more(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    return more


class TableCopy(NamedTuple):
    """A query set, or a table of prompts or tokens, that another bank lacks."""

    path: str
    """Relative to either bank."""
    data: bytes


def copy_checked(
    source: Path, target: Path, expected: Digest, *, copied: Callable[[int], None]
) -> None:
    """Copy a file durably; `copied` is called with the bytes of each piece.

    Raises
    ------
    DamagedError
        It is not there or not what `expected` says; what was copied of it is to be dropped.
    """
    objects.require_file(source)
    digest, size = hashlib.sha256(), 0
    try:
        with source.open("rb") as reading, target.open("wb") as writing:
            # No further than it should be: a stranger's file may be larger, or have no end.
            while piece := reading.read(min(_PIECE, expected.bytes + 1 - size)):
                size += len(piece)
                digest.update(piece)
                writing.write(piece)
                copied(len(piece))
            writing.flush()
            os.fsync(writing.fileno())
    except FileNotFoundError as error:
        raise DamagedError(f"{source} was committed and is not there; {VERIFY}") from error
    if Digest(digest.hexdigest(), size) != expected:
        raise DamagedError(f"{source} is not what was committed, so it is not copied; {VERIFY}")


def tables_to_copy(into: Bank | None, sources: Sequence[Bank]) -> list[TableCopy]:
    """Query sets, prompts and texts of tokens that `into` lacks, in this order; all are checked.

    Raises
    ------
    DamagedError
        One is not what its name says.
    BankError
        Prompts of one name and id differ between banks; names both.
    """
    copies: dict[str, TableCopy] = {}
    for bank in sources:
        for name in query_tables.query_set_names(bank.path):
            path = f"queries/{name}.parquet"
            bank.query_set(name)
            if path not in copies and not (into is not None and _has(into, path)):
                copies[path] = TableCopy(path, objects.plain_path(bank.path, path).read_bytes())
    tokenizers = set()
    if into is not None:
        tokenizers = {file.name for file in token_texts.tokens_files(into.path)}
    tables_by_name: dict[str, list[tuple[Path, pl.DataFrame]]] = {}
    for bank in [*([] if into is None else [into]), *sources]:
        # The target may have lost query sets, which come back from the sources.
        queries = [bank, *sources] if bank is into else [bank]
        for file in prompt_tables.prompt_files(bank.path):
            _add_prompts(queries, file, tables_by_name, copies, copy=bank is not into)
    for bank in sources:
        for tokens in token_texts.tokens_files(bank.path):
            path = f"{token_texts.FOLDER}/{tokens.path.name}"
            if tokens.name not in tokenizers:
                _tokens(tokens)
                tokenizers.add(tokens.name)
                copies[path] = TableCopy(path, tokens.path.read_bytes())
    return list(copies.values())


def write_tables(into: Bank, copies: Iterable[TableCopy]) -> None:
    for copy in copies:
        table_files.put_table(into.path, objects.plain_path(into.path, copy.path), copy.data)


def _has(bank: Bank, path: str) -> bool:
    return objects.plain_path(bank.path, path).exists()


def _add_prompts(
    queries: Sequence[Bank],
    file: table_files.TableFile,
    tables_by_name: dict[str, list[tuple[Path, pl.DataFrame]]],
    copies: dict[str, TableCopy],
    *,
    copy: bool,
) -> None:
    path = f"prompts/{file.path.name}"
    known = tables_by_name.setdefault(file.name, [])
    if any(other.name == file.path.name for other, _ in known):
        return
    table = _prompts(queries, file)
    for other, stored in known:
        try:
            prompt_checks.check_unchanged(file.name, table, stored)
        except UsageError as error:
            raise BankError(
                f"{file.path} cannot be joined with {other}: {error}. Nothing was copied"
            ) from error
    known.append((file.path, table))
    if copy:
        copies[path] = TableCopy(path, file.path.read_bytes())


def _prompts(queries: Sequence[Bank], file: table_files.TableFile) -> pl.DataFrame:
    """A table of prompts, checked against its name and the query sets of these banks."""

    def count(name: str) -> int:
        holding = (bank for bank in queries if _has(bank, f"queries/{name}.parquet"))
        return query_tables.query_count(next(holding, queries[0]).path, name)

    table_files.require_sound(file.path)
    try:
        table = prompt_tables.prompts_in(file.path)
        prompt_checks.check_prompts(table, count)
    except (DamagedError, UsageError) as error:
        raise DamagedError(f"{file.path}: {error}; {VERIFY}") from error
    return table


def _tokens(file: table_files.TableFile) -> None:
    """Refuse a table of tokens that is not what its name says."""
    table_files.require_sound(file.path)
    try:
        token_texts.tokens_in(file.path)
    except DamagedError as error:
        raise DamagedError(f"{file.path}: {error}; {VERIFY}") from error
