"""Checks of a table of prompts before it is stored: its form, and that no stored prompt changes."""

from collections.abc import Callable
from typing import NamedTuple

import polars as pl

from logitbank.errors import UsageError
from logitbank.store.format.limits import CONTROL, MAX_ID, check_name, check_text
from logitbank.store.format.schema import (
    PROMPTS_SCHEMA,
    RESERVED_COLUMNS,
)

PROMPT_KEY = ("prompt_id", "order_seed", "piece", "option", "query_set")


_PROMPT = ("prompt_id", "order_seed", "piece")
_TEXTS = ("text", "answer")
LONG_BYTES = 2**27
"""Of a column of texts that is compared by codes: of 300,000 short ones it takes twice as long."""


_NULLABLE = ("order_seed", "answer", "option", "continuation", "token", "is_answer")


_OPTION = ("option", "continuation", "token")


_OWN_TYPES = (
    *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64),
    *(pl.Float32, pl.Float64, pl.String, pl.Boolean),
)


def check_prompts(table: pl.DataFrame, count_of: Callable[[str], int]) -> None:
    """Refuse an invalid table of prompts, or one that points to missing queries.

    `count_of` gives the number of queries of a query set. Raises UsageError for columns, types,
    nulls, repeated rows, or rows and tokens outside the query set, and AbsentError for a missing
    query set.
    """
    _check_columns(table)
    if table.is_empty():
        raise UsageError("a table of prompts needs at least one row; this one is empty")
    for name in (n for n in PROMPTS_SCHEMA if n not in _NULLABLE):
        if table[name].null_count():
            raise UsageError(f"prompts column {name!r} holds nulls; give every row a value")
    ids = table["prompt_id"].unique()
    for prompt in ids.filter(ids.str.contains(CONTROL) | (ids.str.len_chars() > MAX_ID)).head(1):
        check_text(prompt, "prompt id", one_line=True, most=MAX_ID)
    partial = table.filter(
        pl.any_horizontal(pl.col(_OPTION).is_null())
        & pl.any_horizontal(pl.col(_OPTION).is_not_null())
    )
    if not partial.is_empty():
        raise UsageError(
            f"prompt {partial['prompt_id'][0]!r} has an option with only some of"
            f" {', '.join(_OPTION)}; give all three, or none for a prompt without options"
        )
    repeated = table.filter(pl.struct(PROMPT_KEY).is_duplicated())
    if not repeated.is_empty():
        first = dict(zip(PROMPT_KEY, repeated.select(PROMPT_KEY).row(0), strict=True))
        raise UsageError(f"prompts hold {first} twice; each goes in once")
    for (query_set,), part in table.group_by("query_set"):
        count = count_of(str(query_set))
        token_outside = (pl.col("token") < 0).fill_null(False)
        outside = part.filter(~pl.col("row").is_between(0, count - 1) | token_outside)
        if not outside.is_empty():
            row, token = outside.select("row", "token").row(0)
            raise UsageError(
                f"prompts point at row {row}, token {token} of {query_set};"
                f" rows are 0 to {count - 1} and tokens start at 0"
            )
    _check_tokens_differ(table)


def _check_tokens_differ(table: pl.DataFrame) -> None:
    """Refuse options of a prompt with the same tokens, which no metric could tell apart."""
    same = table.filter(
        pl.col("token").is_not_null(), pl.struct(*_PROMPT, "query_set", "token").is_duplicated()
    )
    if same.is_empty():
        return
    # Options of several tokens may begin alike, as long as some token differs.
    key = ["prompt_id", "order_seed", "query_set"]
    asked = table.join(same.select(key).unique(), on=key, how="semi", nulls_equal=True)
    scored = pl.format("{}:{}", "row", "token").sort().str.join(",")
    options = asked.drop_nulls("token").group_by(*key, "option").agg(scored.alias("scored"))
    alike = options.filter(pl.struct(*key, "scored").is_duplicated())
    same = same.join(alike, on=[*key, "option"], how="semi", nulls_equal=True)
    if not same.is_empty():
        prompt, token = same.select("prompt_id", "token").row(0)
        labels = same.filter(prompt_id=prompt, token=token)["option"].unique().sort().to_list()
        raise UsageError(
            f"prompt {prompt!r} has options {' and '.join(map(repr, labels))} with the same token"
            f" {token}; use continuations that begin differently"
        )


class ChangedPrompt(NamedTuple):
    """A prompt whose content differs in two tables; as text, its id and order."""

    prompt: str
    order: int | None
    column: str

    def __str__(self) -> str:
        return f"{self.prompt!r}{'' if self.order is None else f' (order {self.order})'}"


def check_unchanged(name: str, table: pl.DataFrame, stored: pl.DataFrame) -> None:
    """Refuse other content of a stored prompt: a union would mix both."""
    if (changed := changed_prompt(table, stored)) is not None:
        raise UsageError(
            f"prompt {changed} is in the bank's {name!r} with another {changed.column!r}; give the"
            " changed prompts other ids, or store them under another name"
        )


def changed_prompt(table: pl.DataFrame, stored: pl.DataFrame) -> ChangedPrompt | None:
    """The first prompt whose content differs in two tables, or None."""
    there = {*stored.columns}
    shared = [c for c in table.columns if c in there]
    parts = [stored.select(shared), table.select(shared)]
    both = pl.concat(parts, how="vertical_relaxed")  # whole numbers may have become broken ones
    # As codes: a text of 80 kB may stand in every row, and a join copies what it goes by.
    long = [name for name in _TEXTS if (both[name].str.len_bytes().sum() or 0) > LONG_BYTES]
    both = both.cast({name: pl.Enum(both[name].drop_nulls().unique()) for name in long})
    old, new = both.head(len(stored)), both.tail(len(table))
    # Text and answer whatever the tokenizer, since a changed text has other queries.
    for column in _TEXTS:
        before, now = (part.select(*_PROMPT, column) for part in (old, new))
        known = now.join(before, on=_PROMPT, how="semi", nulls_equal=True)
        other = known.join(before, on=now.columns, how="anti", nulls_equal=True)
        if not other.is_empty():
            prompt, order = other.select("prompt_id", "order_seed").row(0)
            return ChangedPrompt(prompt, order, column)
    # The rest where query set and option are the same. Rows are matched once, whatever the number
    # of columns: a join for each of 10,000 took 34 s.
    before, now = (part.select(PROMPT_KEY).with_row_index("at") for part in (old, new))
    pairs = now.join(before, on=PROMPT_KEY, nulls_equal=True, maintain_order="left")
    for column in [c for c in shared if c not in PROMPT_KEY]:
        differs = new[column][pairs["at"]].ne_missing(old[column][pairs["at_right"]])
        if differs.any():
            first = int(pairs["at"][differs.arg_true()[0]])
            prompt, order = new.select("prompt_id", "order_seed").row(first)
            return ChangedPrompt(prompt, order, column)
    return None


def _check_columns(table: pl.DataFrame) -> None:
    schema = table.schema
    for i, (name, dtype) in enumerate(PROMPTS_SCHEMA.items()):
        got = table.columns[i] if i < table.width else None
        if got != name or schema[name] != dtype:
            actual = f"{got!r} ({schema[got]})" if got is not None else "nothing"
            raise UsageError(
                f"prompts column {i + 1} must be {name!r} ({dtype}); got {actual}."
                f" The first columns are {', '.join(PROMPTS_SCHEMA)}"
            )
    for name in table.columns[len(PROMPTS_SCHEMA) :]:
        dtype = schema[name]
        check_name(name, "prompts column")
        if name in RESERVED_COLUMNS:
            raise UsageError(f"prompts column {name!r} has a reserved name; rename it")
        if dtype not in _OWN_TYPES:
            raise UsageError(f"prompts column {name!r} is {dtype}; use text, numbers or booleans")
