"""SQL over a bank: its tables as lazy frames, of which a query reads only what it needs.

A join does not pass a filter on its prompts to the scores. So the frame of scores looks at the
filter itself: conditions on checkpoints select deposits, and conditions on options select tokens,
before a score is read.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Protocol

import polars as pl

from logitbank.errors import UsageError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format.schema import INFO, PROMPTS_SCHEMA
from logitbank.store.read.scan import CHECKPOINT, VALUES, scan
from logitbank.store.tables.io_source import io_source
from logitbank.store.tables.prompt_tables import query_sets_of
from logitbank.store.tables.token_texts import COLUMN as TEXT

_PROMPT = ("prompt_set", "prompt_id", "order_seed")
_OPTION = ("piece", "option", "continuation", "token", "token_text", "is_answer")
_QUERY = ("query_set", "row")
_OF_SCORES = ("prompt_set", "prompt_id", "order_seed", "piece", "option", "token", TEXT)
"""Columns of prompts and options in the frame of scores."""
AT_ONCE = 500_000
"""Scores that are read at once."""
_A_SLICE = 50_000
"""Rows that Polars is given at a time, since it holds several parts."""
_READERS = r"read_(csv|ipc|json|ndjson|parquet)\b|(read|scan)_\w+[\"`\]]?\s*(\(|/\*|--)"
"""Table functions of Polars that read files and URLs, however they are written. The names of today
are looked for in texts and comments too: where those end is for Polars to say."""


class RequireScored(Protocol):
    """`Bank.require_scored`, which is called before scores are read."""

    def __call__(self, prompts: str, deposits: Sequence[Deposit], *, of: pl.LazyFrame) -> None: ...


def frames(
    prompts: Mapping[str, pl.LazyFrame],
    deposits: Sequence[Deposit],
    info: Callable[[], pl.DataFrame],
    require_scored: RequireScored,
) -> dict[str, pl.LazyFrame]:
    """The tables of a bank, each lazily.

    Parameters
    ----------
    prompts
        Tables of all prompt sets, at least one, by name, with the column `token_text`.
    deposits, info
        All of the bank, and its table of them, which takes a while.

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
        **({"scores": _scores(scored, require_scored)} if scored else {}),
    }


def _scores(
    scored: Sequence[tuple[str, pl.LazyFrame, Sequence[Deposit]]], require_scored: RequireScored
) -> pl.LazyFrame:
    """Scores of prompt sets: name, table with `token_text`, and the deposits that score it."""
    first = scored[0][2][0]
    schema = pl.Schema(
        {
            **CHECKPOINT,
            **{name: PROMPTS_SCHEMA.get(name, pl.String()) for name in _OF_SCORES},
            **VALUES,
            "logit": first.scores_schema["logit"],  # more exact after a filter than stored
        }
    )

    def read(
        columns: list[str], predicate: pl.Expr | None, n_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        parts = _conjuncts(predicate)
        # Texts of tokens are looked up if they are asked for, which few queries do.
        used = {*columns, *(predicate.meta.root_names() if predicate is not None else ())}
        of_options = [name for name in _OF_SCORES[1:] if name != TEXT or TEXT in used]
        for name, prompts, deposits in scored:
            table = prompts.select(pl.lit(name).alias("prompt_set"), *of_options, *_QUERY)
            options = table.filter(*_about(parts, _OF_SCORES)).collect()
            sets = set(options["query_set"].unique())
            chosen = _selected([d for d in deposits if d.query_set in sets], parts)
            for batch in _batches(chosen, len(options), n_rows):
                require_scored(name, batch, of=options.lazy())
                frame = scan(options.lazy(), batch, tokens=options["token"].drop_nulls().unique())
                frame = frame if predicate is None else frame.filter(predicate)
                frame = frame if n_rows is None else frame.head(n_rows)
                yield from frame.select(columns).collect().iter_slices(_A_SLICE)

    return io_source(schema, read, is_pure=False)


def _conjuncts(predicate: pl.Expr | None) -> list[pl.Expr]:
    """The parts that must all hold; a predicate that is no conjunction is one part.

    >>> a, b = pl.col("a") == 1, pl.col("b") > 2
    >>> [part.meta.root_names() for part in _conjuncts(a & b)]
    [['a'], ['b']]
    """
    if predicate is None:
        return []
    inner = predicate.meta.pop()
    if len(inner) == 2:
        for first, second in (inner, inner[::-1]):
            if (first & second).meta.eq(predicate):
                return [*_conjuncts(first), *_conjuncts(second)]
    return [predicate]


def _about(parts: Sequence[pl.Expr], columns: Collection[str]) -> list[pl.Expr]:
    return [
        part for part in parts if (names := part.meta.root_names()) and set(names) <= set(columns)
    ]


def _selected(deposits: Sequence[Deposit], parts: Sequence[pl.Expr]) -> list[Deposit]:
    """Deposits whose checkpoints satisfy the conditions on checkpoints."""
    rows = [tuple(getattr(d.checkpoint, name) for name in CHECKPOINT) for d in deposits]
    checkpoints = pl.DataFrame(rows, schema=CHECKPOINT, orient="row").with_row_index("_at")
    return [deposits[at] for at in checkpoints.filter(*_about(parts, CHECKPOINT))["_at"]]


def _batches(
    deposits: Sequence[Deposit], options: int, n_rows: int | None
) -> Iterator[Sequence[Deposit]]:
    """Deposits to read at once; few at first if a query wants few rows."""
    most = max(1, AT_ONCE // max(1, options))
    size = most if n_rows is None else max(1, min(AT_ONCE, n_rows) // max(1, options))
    first = 0
    while options and first < len(deposits):
        end = min(first + size, len(deposits))
        while end < len(deposits) and deposits[end].checkpoint == deposits[end - 1].checkpoint:
            end += 1  # two query sets of a checkpoint may have the same prompt
        yield deposits[first:end]
        first, size = end, min(most, 2 * size)


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
