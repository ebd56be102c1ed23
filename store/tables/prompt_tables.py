"""Tables of prompts: immutable Parquet files named by the digest of their content.

The prompts of a set are those of its file at the last `extract`. If a file lost prompts or options,
its new table has a `REVISION`, and tables of lower revisions remain for their stored scores only.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import polars as pl

from logitbank.errors import AbsentError, BankError, DamagedError
from logitbank.store.files import copies, objects
from logitbank.store.format.limits import shown
from logitbank.store.format.parquet import PARQUET_ERRORS, PROMPTS, check_size
from logitbank.store.format.schema import PROMPTS_SCHEMA, REVISION, OptionTokens, folder_name
from logitbank.store.tables.prompt_checks import (
    PROMPT_KEY,
    changed_prompt,
    check_prompts,
    check_tokens_differ,
    check_unchanged,
)
from logitbank.store.tables.query_tables import query_count, query_set_tokenizer
from logitbank.store.tables.table_files import (
    TABLE_FILE,
    TableFile,
    content_digest,
    named_files,
    require_content,
    require_sound,
    scan_table,
    write_table,
)
from logitbank.wording import counted

FOLDER = "prompts"
CONTENT = ("prompt_id", "order_seed", "option")
"""The columns of a prompt in a prompt file, whatever the tokenizer."""


class SetChange(NamedTuple):
    """How a table differs from the stored prompts of its set; as text, a note for the user."""

    name: str
    removed: int
    """Prompts that the table does not have."""
    added: int
    """Prompts that only the table has."""
    options_removed: int
    """Options that are no longer in the table, of prompts that are."""

    def __str__(self) -> str:
        options = f"{counted(self.options_removed, 'option')} of prompts"
        parts = [
            f"{counted(self.removed, 'prompt')} removed" if self.removed else "",
            f"{counted(self.added, 'prompt')} added" if self.added else "",
            f"{options} removed or renamed" if self.options_removed else "",
        ]
        changes = ", ".join(filter(None, parts))
        return f"{self.name} changed: {changes}. Their results stay in the bank."


def set_change(root: Path, name: str, content: pl.DataFrame) -> SetChange | None:
    """How the content of a file changes the stored set; None if it only adds to it.

    `content` has the columns `CONTENT`, or those without `option`, of all prompts of the file, also
    of those that a tokenizer skips.
    """
    if not any(file.name == name for file in prompt_files(root)):
        return None
    stored = scan_prompts(root, name).select(content.columns).unique().collect()
    gone = stored.join(content, on=content.columns, how="anti", nulls_equal=True)
    if gone.is_empty():
        return None
    before, now, lost = ({*part["prompt_id"]} for part in (stored, content, gone))
    return SetChange(
        name=name,
        removed=len(before - now),
        added=len(now - before),
        options_removed=len(gone.filter(~pl.col("prompt_id").is_in([*(lost - now)]))),
    )


def write_set(root: Path, name: str, table: pl.DataFrame, content: pl.DataFrame) -> None:
    """Store a table of a file's prompts: what is not in its `content` leaves the set.

    Of other tokenizers, the prompts that the file still has remain in the set. `content` is that of
    `set_change`.
    """
    revision, stored = current_tables(root, name)
    if len(stored) == 1 and stored[0].collect().equals(table):
        return  # nothing is new, as in a run that goes on with the same prompts
    check_prompts(table, partial(query_count, root))
    require_unchanged(root, name, table)
    if set_change(root, name, content) is not None:
        revision += 1
        own = {query_set_tokenizer(root, each) for each in table["query_set"].unique()}
        before = scan_prompts(root, name).collect()
        other = [
            each
            for each in before["query_set"].unique()
            if query_set_tokenizer(root, each) not in own
        ]
        kept = before.filter(pl.col("query_set").is_in(other)).join(
            content, on=content.columns, how="semi", nulls_equal=True
        )
        if not kept.is_empty():  # first, so that a killed writer leaves no set without them
            _write(root, name, kept, revision)
    _write(root, name, table, revision)


def write_prompts(root: Path, name: str, table: pl.DataFrame) -> str:
    """Add a table of prompts to the set `name`; returns the digest of its content."""
    check_prompts(table, partial(query_count, root))
    require_unchanged(root, name, table)
    revision, stored = current_tables(root, name)
    if stored:
        union = pl.concat([scan_prompts(root, name).collect(), table], how="diagonal_relaxed")
        check_tokens_differ(union.unique(list(PROMPT_KEY), keep="first", maintain_order=True))
    return _write(root, name, table, revision)


def _write(root: Path, name: str, table: pl.DataFrame, revision: int) -> str:
    if revision:
        table = table.with_columns(pl.lit(revision, pl.Int64).alias(REVISION))
    digest = content_digest(table)
    path = objects.plain_path(root, f"prompts/{folder_name(name)}-{digest}.parquet")
    if not path.exists():
        # Again under the lock: another writer may have stored another version meanwhile.
        write_table(root, path, table, {}, partial(require_unchanged, root, name, table))
    return digest


def require_unchanged(root: Path, name: str, table: pl.DataFrame) -> None:
    """Refuse prompts that are stored under `name` with other content, with a UsageError."""
    for file in prompt_files(root):
        if file.name == name:
            check_unchanged(name, table, _scan_file(file.path).collect())


class Version(NamedTuple):
    """The tables of one prompt set at one place."""

    place: str
    """Folder or URL, for messages."""
    tables: Mapping[str, pl.DataFrame]
    """By digest."""

    @property
    def revision(self) -> int:
        return max(table_revision(table.lazy()) for table in self.tables.values())

    def content(self) -> pl.DataFrame:
        """The prompts and options of the last revision."""
        last = self.revision
        current = [t for t in self.tables.values() if table_revision(t.lazy()) == last]
        return pl.concat([table.select(CONTENT) for table in current]).unique()


def require_one_version(name: str, one: Version, other: Version) -> None:
    """Refuse two versions of a prompt set with a BankError that names the place of each.

    No prompt may have other content. One place may have all tables of the other, and more.
    Otherwise the sets have lost prompts equally often, and one has all prompts and options of the
    other.
    """
    if {*one.tables} <= {*other.tables} or {*other.tables} <= {*one.tables}:
        return
    here, there = ({*a.tables} - {*b.tables} for a, b in ((one, other), (other, one)))
    for digest, old in product(sorted(here), sorted(there)):
        if changed := changed_prompt(one.tables[digest], other.tables[old]):
            difference = (
                f"Prompt {changed} has {changed.column} {shown(changed.new)} in {one.place} and"
                f" {shown(changed.stored)} in {other.place}."
            )
            raise _two_versions(name, (one.place, digest), (other.place, old), difference)
    contents = one.content(), other.content()
    contained = any(
        a.join(b, on=CONTENT, how="anti", nulls_equal=True).is_empty()
        for a, b in (contents, contents[::-1])
    )
    if one.revision != other.revision or not contained:
        counts = [content["prompt_id"].n_unique() for content in contents]
        difference = f"They have {counts[0]:,} and {counts[1]:,} prompts, or other options."
        raise _two_versions(name, (one.place, min(here)), (other.place, min(there)), difference)


def _two_versions(
    name: str, one: tuple[str, str], other: tuple[str, str], difference: str
) -> BankError:
    versions = " and ".join(
        f"{place}/{FOLDER}/{folder_name(name)}-{digest}.parquet" for place, digest in (one, other)
    )
    return BankError(
        f"Prompt set {name!r} has two versions: {versions}. {difference} Run `logitbank extract`"
        " with one prompt file for both banks, or give one prompt file another name. Nothing was"
        " copied."
    )


def table_revision(table: pl.LazyFrame) -> int:
    """How many times a table's prompt set had lost prompts or options when it was stored."""
    if REVISION not in table.collect_schema():
        return 0
    return int(table.select(REVISION).head(1).collect().item())


def current_tables(root: Path, name: str) -> tuple[int, list[pl.LazyFrame]]:
    """The last revision of a prompt set, and its tables, whose union is the set."""
    tables = [_scan_file(file.path) for file in prompt_files(root) if file.name == name]
    revisions = [table_revision(table) for table in tables]
    last = max(revisions, default=0)
    return last, [table for table, each in zip(tables, revisions, strict=True) if each == last]


def prompts_in(path: Path) -> pl.DataFrame:
    """The table of prompts in a file, verified against its name, or DamagedError."""
    try:
        check_size(path, PROMPTS)
        table = pl.read_parquet(path, glob=False)
        require_content(path, table)
    except (*PARQUET_ERRORS, OSError, ValueError, TypeError) as error:
        raise DamagedError(f"invalid table of prompts ({error})") from error
    return table


def prompt_paths(paths: Iterable[str]) -> dict[str, dict[str, str]]:
    """The paths of tables of prompts in a bank, by prompt set and digest."""
    found: dict[str, dict[str, str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder == FOLDER and (match := TABLE_FILE.fullmatch(name)):
            found.setdefault(unquote(match[1]), {})[match[2]] = path
    return found


def prompt_files(root: Path) -> list[TableFile]:
    """All tables of prompts, by name and digest."""
    return named_files(root, FOLDER)


def scan_prompts(root: Path, name: str) -> pl.LazyFrame:
    """The union of the current tables of one prompt set, or AbsentError, or DamagedError."""
    tables = [table.drop(REVISION, strict=False) for table in current_tables(root, name)[1]]
    if not tables:
        available = ", ".join(sorted({f.name for f in prompt_files(root)})) or "none"
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


def query_sets_in(path: Path) -> set[str]:
    """Query sets that a table of prompts refers to."""
    require_sound(path)
    column = pl.read_parquet(path, columns=["query_set"], glob=False)["query_set"]
    return set(column.unique().drop_nulls())


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
