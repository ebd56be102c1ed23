"""Damage of query sets, and of tables of prompts and tokens."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from logitbank.errors import DamagedError
from logitbank.store.care.damage import Damage
from logitbank.store.care.lost import AGAIN
from logitbank.store.care.objects_read import Reader
from logitbank.store.files import objects
from logitbank.store.format.attributes import QUERY_SET
from logitbank.store.tables import prompt_tables, query_tables, table_files, token_texts

_FILES = {
    "queries": query_tables.QUERY_FILE,
    "prompts": table_files.TABLE_FILE,
    token_texts.FOLDER: table_files.TABLE_FILE,
}


def table_damage(root: Path, read: Reader, needed: dict[str, str]) -> Iterator[Damage]:
    """Damage of tables; adds to `needed` the query sets that prompts point to."""
    for folder, pattern in _FILES.items():
        for entry in objects.entries(root / folder):
            name = entry.name.removesuffix(".sha256")
            if not pattern.fullmatch(name) or not entry.is_file():
                yield Damage(f"{folder}/{entry.name}", "foreign", "it is no table of a bank")
            elif (
                name != entry.name
                and folder != "queries"
                and not objects.plain_path(root, f"{folder}/{name}").exists()
            ):
                yield Damage(f"{folder}/{name}", "missing", f"its digest is there; {AGAIN}")
            elif name == entry.name:
                yield from _table(root, f"{folder}/{name}", read, needed)


def _table(root: Path, path: str, read: Reader, needed: dict[str, str]) -> Iterator[Damage]:
    """Damage of one table: its bytes are what the sidecar says, its content what its name says."""
    # The bytes first: some flipped ones make a reader of Parquet ask for more memory than there is.
    file = objects.plain_path(root, path)
    digest = read.digest(path, file).sha256
    beside = table_files.digest_file(file)
    where = f"{path}.sha256"
    if not beside.is_file():
        yield Damage(where, "missing", "every table has its digest beside it")
        return
    read.read(where, beside)
    try:
        committed = table_files.recorded_digest(file)
    except DamagedError:
        yield Damage(where, "unreadable", "it is no line of sha256sum for that table")
        return
    if committed != digest:
        yield Damage(path, "changed", f"either it or {where} is another: its SHA-256 is {digest}")
    else:
        try:
            if file.parent.name == "queries":
                query_tables.query_set_in(file)
            elif file.parent.name == token_texts.FOLDER:
                token_texts.tokens_in(file)
            else:
                table = prompt_tables.prompts_in(file)
                for name in table.get_column("query_set", default=pl.Series([])).unique():
                    if QUERY_SET.fullmatch(str(name)):
                        needed.setdefault(name, path)
        except DamagedError as error:
            yield Damage(path, "changed", str(error))
