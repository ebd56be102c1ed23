"""Scores as a source for queries, whose filters choose what is read.

A join does not pass a filter on its prompts to the scores. Here conditions on checkpoints select
deposits, and conditions on options select tokens, before a score is read.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from logitbank.store.format.schema import PROMPTS_SCHEMA
from logitbank.store.read.scan import CHECKPOINT, VALUES, scan
from logitbank.store.tables.io_source import io_source
from logitbank.store.tables.token_texts import COLUMN as TEXT

if TYPE_CHECKING:
    from logitbank.store.deposits.deposit import Deposit

OPTION = ("prompt_set", "prompt_id", "order_seed", "piece", "option", "token", TEXT)
AT_ONCE = 500_000
"""Rows of a batch."""
A_SLICE = 50_000
"""Rows of a batch that are given at a time, as whoever asked holds several of what it is given."""


Look = Callable[[str, pl.LazyFrame, "Sequence[Deposit]"], None]


def scores_source(
    scored: "Sequence[tuple[str, pl.LazyFrame, list[Deposit]]]", look: Look
) -> pl.LazyFrame:
    """Scores of prompt sets, lazily: checkpoint columns, option columns, then `scan`'s values.

    Parameters
    ----------
    scored
        Prompt sets: name, table with `token_text`, and the deposits that score it; at least one of
        each.
    look
        Called before scores are read, with a prompt set's name, the options of it that a filter
        leaves, and deposits.
    """
    options = {name: PROMPTS_SCHEMA.get(name, pl.String()) for name in OPTION}
    schema = _schema(options, [deposit for *_, deposits in scored for deposit in deposits])

    def read(
        wanted: list[str], predicate: pl.Expr | None, n_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        # What tokens say is looked up where it is asked for: most queries do not.
        used = {*wanted, *(predicate.meta.root_names() if predicate is not None else ())}
        columns = [name for name in OPTION[1:] if name != TEXT or TEXT in used]
        for name, prompts, deposits in scored:
            table = prompts.select(pl.lit(name).alias("prompt_set"), *columns, "query_set", "row")
            of_set = partial(look, name)
            yield from _read(table, deposits, OPTION, wanted, predicate, n_rows, of_set)

    return io_source(schema, read, is_pure=False)


def _read(
    table: pl.LazyFrame,
    deposits: "Sequence[Deposit]",
    of_prompts: Collection[str],
    wanted: Sequence[str],
    predicate: pl.Expr | None,
    n_rows: int | None,
    look: "Callable[[pl.LazyFrame, Sequence[Deposit]], None]",
) -> Iterator[pl.DataFrame]:
    """Rows of `scan` that satisfy a predicate, of the deposits that may have some.

    The predicate may select prompts and options by the columns `of_prompts`.
    """
    parts = conjuncts(predicate)
    options = table.filter(*_about(parts, of_prompts)).collect()
    sets = set(options["query_set"].unique())
    of_sets = [deposit for deposit in deposits if deposit.query_set in sets]
    chosen = _chosen(of_sets, _about(parts, CHECKPOINT))
    for batch in _batches(chosen, len(options), n_rows):
        look(options.lazy(), batch)
        frame = scan(options.lazy(), batch, tokens=options["token"].drop_nulls().unique())
        frame = frame if predicate is None else frame.filter(predicate)
        frame = frame if n_rows is None else frame.head(n_rows)
        yield from frame.select(wanted).collect().iter_slices(A_SLICE)


def conjuncts(predicate: pl.Expr | None) -> list[pl.Expr]:
    """The parts that must all hold; a predicate that is no conjunction is one part.

    >>> a, b = pl.col("a") == 1, pl.col("b") > 2
    >>> [part.meta.root_names() for part in conjuncts(a & b)]
    [['a'], ['b']]
    """
    if predicate is None:
        return []
    inner = predicate.meta.pop()
    if len(inner) == 2:
        for first, second in (inner, inner[::-1]):
            if (first & second).meta.eq(predicate):
                return [*conjuncts(first), *conjuncts(second)]
    return [predicate]


def _about(parts: Sequence[pl.Expr], columns: Collection[str]) -> list[pl.Expr]:
    return [
        part for part in parts if (names := part.meta.root_names()) and set(names) <= set(columns)
    ]


def _schema(options: Mapping[str, pl.DataType], deposits: "Sequence[Deposit]") -> pl.Schema:
    """Columns of a source; what a filter makes of a logit is more exact than what is stored."""
    values = {**VALUES, "logit": deposits[0].scores_schema["logit"]}
    return pl.Schema({**CHECKPOINT, **options, **values})


def _checkpoints(deposits: "Sequence[Deposit]") -> pl.DataFrame:
    rows = [tuple(getattr(d.checkpoint, name) for name in CHECKPOINT) for d in deposits]
    return pl.DataFrame(rows, schema=CHECKPOINT, orient="row")


def _chosen(deposits: "Sequence[Deposit]", parts: Sequence[pl.Expr]) -> "list[Deposit]":
    if not parts:
        return list(deposits)
    kept = _checkpoints(deposits).with_row_index("_at").filter(*parts)["_at"]
    return [deposits[at] for at in kept]


def _batches(
    deposits: "Sequence[Deposit]", options: int, n_rows: int | None
) -> "Iterator[Sequence[Deposit]]":
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
