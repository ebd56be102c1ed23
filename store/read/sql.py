"""SQL over a bank: lazy tables in a `polars.SQLContext`, made when a query names them."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import polars as pl

from logitbank.errors import UsageError
from logitbank.store.format.schema import PROMPTS_SCHEMA
from logitbank.store.read.scan import CHECKPOINT, VALUES
from logitbank.store.tables.token_texts import COLUMN as TEXT

_PROMPT = ("prompt_set", "prompt_id", "order_seed")
_OPTION = ("piece", "option", "continuation", "token", TEXT, "is_answer", "query_set", "row")
_SCORE = (*CHECKPOINT, *_PROMPT, "piece", "option", "token", TEXT, *VALUES)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_OPERATOR = re.compile(
    r"[-+*/%^&|<>=!~]+|\b(?:AND|OR|NOT|IS|LIKE|BETWEEN|WHEN|JOIN|SELECT|UNION|INTERSECT|EXCEPT)\b",
    re.IGNORECASE,
)
_MAX_OPERATORS = 400
"""Operators and SELECTs of a query. Polars nests them: it crashes at 1,000 of some kinds."""
Frames = Mapping[str, pl.LazyFrame]
"""Frames of prompt sets, by name, with the column `token_text`."""


def tables(
    prompts: Frames, scans: Callable[[], Frames], info: Callable[[], pl.DataFrame]
) -> dict[str, Callable[[], pl.LazyFrame]]:
    """The tables of a bank, by name; see `Bank.sql`.

    `prompts` are all prompt sets, at least one. `scans` returns `Bank.scan` of those with scores.
    """
    return {
        "checkpoints": lambda: info().lazy(),
        "prompts": lambda: pl.concat(map(_prompts, _named(prompts)), how="diagonal_relaxed"),
        "options": lambda: pl.concat(table.select(*_PROMPT, *_OPTION) for table in _named(prompts)),
        "scores": lambda: pl.concat(table.select(_SCORE) for table in _named(scans())),
    }


def _named(frames: Frames) -> Iterator[pl.LazyFrame]:
    return (frame.with_columns(prompt_set=pl.lit(name)) for name, frame in frames.items())


def _prompts(table: pl.LazyFrame) -> pl.LazyFrame:
    """One row per prompt and option order, with the columns of its prompt set."""
    reserved = {*PROMPTS_SCHEMA, "prompt_set", TEXT}
    extra = [name for name in table.collect_schema().names() if name not in reserved]
    columns = (*_PROMPT, "text", "answer", *extra)
    return table.select(columns).unique(_PROMPT, keep="first", maintain_order=True)


def sql(tables: Mapping[str, Callable[[], pl.LazyFrame]], query: str) -> pl.LazyFrame:
    """The lazy result of a SELECT over tables, or UsageError if the query is invalid."""
    if not re.match(r"[\s(]*(SELECT|WITH)\b", query, re.IGNORECASE):
        raise UsageError(
            f"Query {query.strip()[:40]!r} is not a SELECT statement. Tables: {', '.join(tables)}."
        )
    count = len(_OPERATOR.findall(_QUOTED.sub(" ", query)))
    if count > _MAX_OPERATORS:
        raise UsageError(
            f"The query has {count:,} operators. The maximum is {_MAX_OPERATORS}. Use IN (…) for"
            " many alternatives, or several queries."
        )
    if reader := re.search(r"\b(read|scan)_(csv|ipc|json|ndjson|parquet)\b", query, re.IGNORECASE):
        raise UsageError(f"{reader[0]} is not supported: a query reads only the bank.")
    named = [name for name in tables if re.search(rf"\b{name}\b", query, re.IGNORECASE)]
    frames = {name: tables[name]() for name in named}
    try:
        result = pl.SQLContext(frames, eager=False).execute(query)
        result.collect_schema()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).splitlines()[0].partition("; valid columns")[0]
        columns = [f"{name}: {', '.join(frames[name].collect_schema())}." for name in named]
        quotes = ["Write text in single quotes."] if '"' in query else []
        listed = columns or [f"Tables: {', '.join(tables)}."]
        raise UsageError(f"Invalid query: {reason}. {' '.join([*quotes, *listed])}") from error
    return result


@contextmanager
def query_errors() -> Iterator[None]:
    """Turn an error of Polars while rows are collected into a UsageError about the query."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        if "os error" in str(error) or "DamagedError" in str(error):
            raise
        reason = " ".join(str(error).split())[:300]
        raise UsageError(f"The query failed: {reason}. Change the expression it names.") from error
