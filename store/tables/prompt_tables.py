"""Tables of prompts: immutable Parquet files named by the digest of their content."""

from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.errors import AbsentError, DamagedError
from logitbank.store.files import copies, objects
from logitbank.store.format.parquet import PARQUET_ERRORS, PROMPTS, check_rows, check_texts
from logitbank.store.format.schema import PROMPTS_SCHEMA, OptionTokens, folder_name
from logitbank.store.tables.prompt_checks import PROMPT_KEY, check_prompts, check_unchanged
from logitbank.store.tables.query_tables import query_count
from logitbank.store.tables.table_files import (
    TableFile,
    content_digest,
    named_files,
    require_content,
    scan_table,
    write_table,
)

FOLDER = "prompts"


def write_prompts(root: Path, name: str, table: pl.DataFrame) -> str:
    """Store a table of prompts under `name` and the digest of its content; returns the digest."""
    check_prompts(table, partial(query_count, root))
    digest = content_digest(table)
    path = objects.plain_path(root, f"prompts/{folder_name(name)}-{digest}.parquet")
    if not path.exists():
        require_unchanged(root, name, table)
        write_table(root, path, table, {})
    return digest


def require_unchanged(root: Path, name: str, table: pl.DataFrame) -> None:
    """Refuse prompts that are stored under `name` with other content, with a UsageError."""
    for file in prompt_files(root):
        if file.name == name:
            check_unchanged(name, table, _scan_file(file.path).collect())


def prompts_in(path: Path) -> pl.DataFrame:
    """The table of prompts in a file, verified against its name, or DamagedError."""
    try:
        check_rows(path, most=PROMPTS)
        check_texts(path)
        table = pl.read_parquet(path, glob=False)
        require_content(path, table)
    except (*PARQUET_ERRORS, OSError, ValueError, TypeError) as error:
        raise DamagedError(f"invalid table of prompts ({error})") from error
    return table


def prompt_files(root: Path) -> list[TableFile]:
    """All tables of prompts, by name and digest."""
    return named_files(root, FOLDER)


def scan_prompts(root: Path, name: str) -> pl.LazyFrame:
    """The union of the tables of one prompt set, or AbsentError, or DamagedError."""
    files = prompt_files(root)
    tables = [_scan_file(f.path) for f in files if f.name == name]
    if not tables:
        available = ", ".join(sorted({f.name for f in files})) or "none"
        advice = copies.missing_advice(root / "prompts" / ".parquet", "")
        raise AbsentError(
            f"Prompt set {name!r} is not in {copies.address(root)}. Prompt sets: {available}."
            f"{f' {advice}' if advice else ''}"
        )
    if len(tables) == 1:
        return tables[0]
    union = pl.concat(tables, how="diagonal_relaxed")
    # A column that an earlier table lacks has the value of the later table in all rows of a prompt.
    shared = set.intersection(*({*table.collect_schema().names()} for table in tables))
    names = union.collect_schema().names()
    if added := [name for name in names if name not in shared]:
        # One group_by for all columns: windows for 4,000 of them took minutes.
        prompt, mark = ["prompt_id", "order_seed"], "'"
        while not {*names}.isdisjoint(f"{name}{mark}" for name in added):
            mark += "'"
        values = union.group_by(prompt).agg(pl.col(added).drop_nulls().first().name.suffix(mark))
        union = union.join(values, on=prompt, how="left", nulls_equal=True, maintain_order="left")
        union = union.with_columns(pl.coalesce(name, f"{name}{mark}") for name in added)
        union = union.select(names)
    return union.unique(list(PROMPT_KEY), keep="first", maintain_order=True)


def linked_query_sets(prompts: pl.LazyFrame) -> set[str]:
    """Names of the query sets that a table of prompts points to."""
    return set(prompts.select(pl.col("query_set").unique()).collect()["query_set"])


def named_tokens(root: Path, query_set: str) -> pl.DataFrame:
    """Option tokens of the queries of a query set: distinct (row, token), sorted."""
    tables = [
        _scan_file(f.path)
        .filter(pl.col("query_set") == query_set)
        .select("row", "token")
        .drop_nulls()  # prompts without options
        for f in prompt_files(root)
    ]
    empty = pl.LazyFrame(schema={n: PROMPTS_SCHEMA[n] for n in ("row", "token")})
    return pl.concat([empty, *tables]).unique().sort("row", "token").collect()


def option_tokens(root: Path, query_set: str) -> OptionTokens:
    """The option tokens of each query of a query set, of all prompts."""
    return as_option_tokens(named_tokens(root, query_set), query_count(root, query_set))


def as_option_tokens(pairs: pl.DataFrame, queries: int) -> OptionTokens:
    """Sorted, distinct (row, token) pairs as compressed sparse rows."""
    offsets = np.searchsorted(pairs["row"].to_numpy(), np.arange(queries + 1))
    return OptionTokens(offsets.astype(np.int64), pairs["token"].to_numpy().astype(np.int32))


def _scan_file(path: Path) -> pl.LazyFrame:
    """A table that is read later; its bytes and columns are checked now."""
    return scan_table(path, PROMPTS_SCHEMA, "table of prompts")
