"""SQL over a bank: its tables as lazy frames, of which a query reads only what it needs."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

import polars as pl

from logitbank.errors import UsageError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format.schema import INFO, PROMPTS_SCHEMA
from logitbank.store.read.scores_source import Look, scores_source
from logitbank.store.tables.prompt_tables import query_sets_of

_PROMPT = ("prompt_set", "prompt_id", "order_seed")
_OPTION = ("piece", "option", "continuation", "token", "token_text", "is_answer")
_QUERY = ("query_set", "row")
_READERS = r"read_(csv|ipc|json|ndjson|parquet)\b|(read|scan)_\w+[\"`\]]?\s*(\(|/\*|--)"
"""Table functions of Polars that read files and URLs, however they are written. The names of today
are looked for in texts and comments too: where those end is for Polars to say."""


def frames(
    prompts: Mapping[str, pl.LazyFrame],
    deposits: Sequence[Deposit],
    info: Callable[[], pl.DataFrame],
    look: Look,
) -> dict[str, pl.LazyFrame]:
    """The tables of a bank, each lazily.

    Parameters
    ----------
    prompts
        Tables of all prompt sets, at least one, by name, with the column `token_text`.
    deposits, info
        All of the bank, and its table of them, which takes a while.
    look
        Called before scores are read: with a prompt set's name, the options that are asked for,
        and deposits.

    Returns
    -------
    checkpoints
        `Bank.info`: one row per deposit.
    prompts
        One row per prompt and order: prompt_set, prompt_id, order_seed, text, answer, and the own
        columns of every prompt set, null where another has none.
    options
        One row per prompt, order, piece and option: its continuation, token, token_text,
        is_answer, and the query that it belongs to (query_set, row).
    scores
        One row per checkpoint, prompt, order, piece and option that has been scored, as
        `Bank.scan`, with prompt_set and without the prompts' own columns.
    """
    tables = {name: table.with_columns(prompt_set=pl.lit(name)) for name, table in prompts.items()}
    scored = []
    for name, table in tables.items():
        sets = query_sets_of(table)
        if of_set := [deposit for deposit in deposits if deposit.query_set in sets]:
            scored.append((name, prompts[name], of_set))
    return {
        "checkpoints": pl.defer(info, schema=INFO),
        "prompts": pl.concat([_prompts(t) for t in tables.values()], how="diagonal_relaxed"),
        "options": pl.concat([t.select(*_PROMPT, *_OPTION, *_QUERY) for t in tables.values()]),
        **({"scores": scores_source(scored, look)} if scored else {}),
    }


def sql(frames: Callable[[], dict[str, pl.LazyFrame]], query: str) -> pl.LazyFrame:
    """The lazy result of a SELECT over `frames`, which is called if the query reads no files.

    Raises UsageError if the query is invalid, names an unknown table or column, or reads files, and
    BankError if the bank has no prompts.
    """
    if reader := re.search(rf"\b({_READERS})", query, re.IGNORECASE):
        raise UsageError(
            f"the query names {re.split(r'[^A-Za-z_]', reader[0])[0]}, which reads files and URLs;"
            " a query reads the bank alone: join what it gives with other files in Python"
        )
    tables = frames()
    if not re.match(r"[\s(]*(SELECT|WITH)\b", query, re.IGNORECASE):
        raise UsageError(
            f"{query.strip()[:40]!r} is no query: a bank is only read; write a SELECT, such as"
            f' "SELECT * FROM checkpoints"; tables are {", ".join(tables)}'
        )
    try:
        result = pl.SQLContext(tables, eager=False).execute(query)
        result.collect_schema()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise UsageError(_refusal(str(error).splitlines()[0], query, tables)) from error
    return result


def _refusal(reason: str, query: str, tables: Mapping[str, pl.LazyFrame]) -> str:
    """The reason of Polars, and the tables and columns that the query may have meant."""
    columns = {name: table.collect_schema().names() for name, table in tables.items()}
    named = [name for name in tables if re.search(rf"\b{name}\b", query, re.IGNORECASE)]
    there = "; ".join(f"{name} has {', '.join(columns[name])}" for name in named)
    told = f"the query cannot be answered ({reason.partition('; valid columns')[0]});"
    if match := re.search(r"""(?:find column|column named) (["'])(?P<name>.+?)\1""", reason):
        column = match["name"]
        if f'"{column}"' in query:
            told += f" text is written in single quotes, '{column}';"
        elif others := [name for name in tables if name not in named and column in columns[name]]:
            told += f" {column} is a column of {' and '.join(others)};"
        elif near := get_close_matches(column, {c for name in named for c in columns[name]}, n=1):
            told += f" did you mean {near[0]}?"
    return f"{told} {there}" if there else f"{told} tables are {', '.join(tables)}"


@contextmanager
def answered() -> Iterator[None]:
    """Turn an error of Polars into a UsageError about the query.

    A query that is invalid for some value fails while its rows are collected. Stored data were
    verified before.
    """
    try:
        yield
    except pl.exceptions.PolarsError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if any("os error" in line or "DamagedError" in line for line in lines):
            raise
        raise UsageError(
            f"the query cannot be answered ({' '.join(lines)[:300]}); change the expression that"
            " it names"
        ) from error


def _prompts(table: pl.LazyFrame) -> pl.LazyFrame:
    extra = [name for name in table.collect_schema().names()
           if name not in {*PROMPTS_SCHEMA, "prompt_set", "token_text"}]  # fmt: skip
    columns = (*_PROMPT, "text", "answer", *extra)
    return table.select(columns).unique(_PROMPT, keep="first", maintain_order=True)
