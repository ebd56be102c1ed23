"""Query sets: immutable Parquet files named by the digest of their content."""

from pathlib import Path

import polars as pl

from logitbank.errors import AbsentError, DamagedError, UsageError
from logitbank.store.files import copies, objects
from logitbank.store.format.attributes import QUERY_SET
from logitbank.store.format.limits import MAX_NAME
from logitbank.store.format.parquet import PARQUET_ERRORS, PROMPTS, check_size
from logitbank.store.format.queries import QUERIES_SCHEMA, QuerySet
from logitbank.store.tables.table_files import require_sound, scan_table, write_table
from logitbank.wording import VERIFY

TOKENIZER_KEY = "logitbank.tokenizer"


def write_query_set(root: Path, query_set: QuerySet) -> str:
    """Store a query set, unless it is stored, and return its name."""
    path = query_file(root, query_set.name)
    if not path.exists():
        write_table(root, path, query_set.to_frame(), {TOKENIZER_KEY: query_set.tokenizer})
    return query_set.name


def query_file(root: Path, name: str) -> Path:
    """Path of a query set; UsageError if the name is invalid."""
    if not QUERY_SET.fullmatch(name):
        raise UsageError(f"Query set {name!r} is invalid: a name is q- and 16 hex digits.")
    return objects.plain_path(root, f"queries/{name}.parquet")


def query_set_names(root: Path) -> list[str]:
    stems = [entry.name.removesuffix(".parquet") for entry in objects.entries(root / "queries")]
    return [stem for stem in stems if QUERY_SET.fullmatch(stem)]


def read_query_set(root: Path, name: str) -> QuerySet:
    """A query set, verified against its name; AbsentError or DamagedError."""
    path = _present(root, name)
    require_sound(path)
    return query_set_in(path)


def query_set_in(path: Path) -> QuerySet:
    """The query set in a file, verified against its name, or DamagedError."""
    try:
        check_size(path, PROMPTS)
        _check_names(path)
        frame = pl.read_parquet(path, glob=False)
        query_set = QuerySet.from_frame(_tokenizer_in(path), frame)
    except (*PARQUET_ERRORS, UsageError, OSError, TypeError) as error:
        raise DamagedError(f"{path} is not a query set ({error}); {VERIFY}") from error
    if query_set.name != path.stem:
        raise DamagedError(f"{path} has the queries of {query_set.name}; {VERIFY}")
    return query_set


def _check_names(path: Path) -> None:
    """Refuse long texts in columns of names, which a row of Python objects would repeat."""
    names = pl.scan_parquet(path, glob=False).select(pl.col(pl.String).str.len_chars().max())
    for column, length in names.collect().row(0, named=True).items():
        if (length or 0) > MAX_NAME:
            raise DamagedError(
                f"{path} has a {column} of {length:,} letters. The maximum is {MAX_NAME}."
            )


def query_count(root: Path, name: str) -> int:
    """Number of queries, without reading them."""
    return int(_scan_queries(root, name).select(pl.len()).collect().item())


def query_set_tokenizer(root: Path, name: str) -> str:
    """Digest of the tokenizer that made a query set's ids."""
    path = _present(root, name)
    require_sound(path)
    return _tokenizer_in(path)


def query_set_head(root: Path, name: str) -> str:
    """The head of a query set's first query; heads of one set have as many outputs."""
    return str(_scan_queries(root, name).select("head").head(1).collect().item())


def _scan_queries(root: Path, name: str) -> pl.LazyFrame:
    """The file of a query set that is read later; its bytes are checked now."""
    return scan_table(_present(root, name), QUERIES_SCHEMA, "query set")


def _tokenizer_in(path: Path) -> str:
    try:
        return pl.read_parquet_metadata(path)[TOKENIZER_KEY]
    except (*PARQUET_ERRORS, KeyError) as error:
        raise DamagedError(f"{path} is not a query set ({error}); {VERIFY}") from error


def _present(root: Path, name: str) -> Path:
    path = query_file(root, name)
    if not path.exists():
        names = ", ".join(query_set_names(root)) or "none"
        advice = copies.missing_advice(path, "Add it with add_query_set.")
        raise AbsentError(
            f"Query set {name} is not in {copies.address(root)}. Query sets: {names}. {advice}"
        )
    return path
