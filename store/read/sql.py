"""SQL over a bank: four lazy tables in a `polars.SQLContext`."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import polars as pl

from logitbank.errors import UsageError
from logitbank.store.format.schema import INFO, PROMPTS_SCHEMA
from logitbank.store.read.scan import CHECKPOINT, VALUES
from logitbank.store.tables.token_texts import COLUMN as TEXT

_PROMPT = ("prompt_set", "prompt_id", "order_seed")
_OPTION = ("piece", "option", "continuation", "token", TEXT, "is_answer", "query_set", "row")
_SCORE = (*_PROMPT, "piece", "option", "token", TEXT)
_SCORES_SCHEMA = pl.Schema(
    {**CHECKPOINT, **{name: PROMPTS_SCHEMA.get(name, pl.String()) for name in _SCORE}, **VALUES}
)


def frames(
    prompts: Mapping[str, pl.LazyFrame],
    scans: Mapping[str, Callable[[], pl.LazyFrame]],
    info: Callable[[], pl.DataFrame],
    *,
    logit: pl.DataType,
) -> dict[str, pl.LazyFrame]:
    """The tables of a bank; see `Bank.sql`.

    Parameters
    ----------
    prompts
        Tables of all prompt sets, at least one, by name, with the column `token_text`.
    scans
        `Bank.scan` with `token_text` of the prompt sets with scores, called when scores are read.
    info
        `Bank.info`, called when its table is read.
    logit
        Type of logits.
    """
    tables = [table.with_columns(prompt_set=pl.lit(name)) for name, table in prompts.items()]
    schema = pl.Schema({**_SCORES_SCHEMA, "logit": logit})

    def scores() -> pl.LazyFrame:
        scanned = [scan().with_columns(prompt_set=pl.lit(name)) for name, scan in scans.items()]
        return pl.concat(frame.select(schema.names()) for frame in scanned)

    return {
        "checkpoints": pl.defer(info, schema=INFO),
        "prompts": pl.concat([_prompts(table) for table in tables], how="diagonal_relaxed"),
        "options": pl.concat([table.select(*_PROMPT, *_OPTION) for table in tables]),
        **({"scores": pl.defer(scores, schema=schema)} if scans else {}),  # type: ignore[arg-type]
    }


def _prompts(table: pl.LazyFrame) -> pl.LazyFrame:
    """One row per prompt and option order, with the columns of its prompt set."""
    reserved = {*PROMPTS_SCHEMA, "prompt_set", TEXT}
    extra = [name for name in table.collect_schema().names() if name not in reserved]
    columns = (*_PROMPT, "text", "answer", *extra)
    return table.select(columns).unique(_PROMPT, keep="first", maintain_order=True)


def sql(tables: Mapping[str, pl.LazyFrame], query: str) -> pl.LazyFrame:
    """The lazy result of a SELECT over tables, or UsageError if the query is invalid."""
    if not re.match(r"[\s(]*(SELECT|WITH)\b", query, re.IGNORECASE):
        raise UsageError(
            f"Query {query.strip()[:40]!r} is not a SELECT statement. Tables: {', '.join(tables)}."
        )
    if reader := re.search(r"\b(read|scan)_(csv|ipc|json|ndjson|parquet)\b", query, re.IGNORECASE):
        raise UsageError(f"{reader[0]} is not supported: a query reads only the bank.")
    try:
        result = pl.SQLContext(tables, eager=False).execute(query)
        result.collect_schema()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).splitlines()[0].partition("; valid columns")[0]
        named = [name for name in tables if re.search(rf"\b{name}\b", query, re.IGNORECASE)]
        columns = [f"{name}: {', '.join(tables[name].collect_schema())}." for name in named]
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
