"""Checks of a table of prompts before it is stored: its form, and that no stored prompt changes."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import polars as pl

from logitbank.errors import UsageError
from logitbank.store.format.limits import CONTROL, MAX_ID, check_name, check_text
from logitbank.store.format.parquet import MAX_TEXT
from logitbank.store.format.schema import PROMPTS_SCHEMA, RESERVED_COLUMNS, REVISION

PROMPT_KEY = ("prompt_id", "order_seed", "piece", "option", "query_set")
_PROMPT = ("prompt_id", "order_seed", "piece")
_CONTENT = ("text", "answer")
_NULLABLE = ("order_seed", "answer", "option", "continuation", "token", "is_answer")
_OPTION = ("option", "continuation", "token")
_METADATA_TYPES = (
    *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64),
    *(pl.Float32, pl.Float64, pl.String, pl.Boolean),
)


def check_prompts(table: pl.DataFrame, count_queries: Callable[[str], int]) -> None:
    """Refuse an invalid table of prompts, or one that points to missing queries.

    `count_queries` gives the number of queries of a query set. Raises UsageError for columns,
    types, nulls, repeated rows, or rows and tokens outside the query set, and AbsentError for a
    missing query set.
    """
    _check_columns(table)
    if table.is_empty():
        raise UsageError("The table of prompts is empty; it needs at least one row.")
    for name in (n for n in PROMPTS_SCHEMA if n not in _NULLABLE):
        if table[name].null_count():
            raise UsageError(f"Prompts column {name!r} has nulls; every row needs a value.")
    longest = table.select(pl.col(pl.String).str.len_bytes().max())
    for name, size in longest.row(0, named=True).items():
        if (size or 0) > MAX_TEXT:
            raise UsageError(f"Prompts column {name!r} has a text of more than {MAX_TEXT:,} bytes.")
    ids = table["prompt_id"].unique()
    for prompt in ids.filter(ids.str.contains(CONTROL) | (ids.str.len_chars() > MAX_ID)).head(1):
        check_text(prompt, "prompt id", one_line=True, most=MAX_ID)
    nulls = pl.sum_horizontal(pl.col(_OPTION).is_null())
    partial = table.filter(nulls.is_between(1, len(_OPTION) - 1))
    if not partial.is_empty():
        raise UsageError(
            f"Prompt {partial['prompt_id'][0]!r} has an option with only some of"
            f" {', '.join(_OPTION)}. Set all three, or none for a prompt without options."
        )
    repeated = _repeated(table, PROMPT_KEY)
    if not repeated.is_empty():
        first = repeated.select(PROMPT_KEY).row(0)
        raise UsageError(f"Rows of prompts are repeated, the first: {first}.")
    for query_set in table["query_set"].unique():
        count = count_queries(str(query_set))
        token_outside = (pl.col("token") < 0).fill_null(False)
        row_outside = ~pl.col("row").is_between(0, count - 1)
        outside = table.filter(pl.col("query_set") == query_set, row_outside | token_outside)
        if not outside.is_empty():
            row, token = outside.select("row", "token").row(0)
            raise UsageError(
                f"Prompts name row {row}, token {token} of {query_set}; rows are 0 to {count - 1}"
                " and tokens start at 0."
            )
    check_tokens_differ(table)


def _repeated(table: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """The rows that have the same values in these columns as another one."""
    # By hashes first: keys of two million rows take half a gigabyte.
    suspects = table.filter(pl.struct(columns).hash().is_duplicated())
    return suspects.filter(pl.struct(columns).is_duplicated())


def check_tokens_differ(table: pl.DataFrame) -> None:
    """Refuse options of a prompt with the same tokens, which no metric could distinguish."""
    same = _repeated(table.filter(pl.col("token").is_not_null()), (*_PROMPT, "query_set", "token"))
    if same.is_empty():
        return
    # Options of several tokens may begin alike if some token differs.
    key = ["prompt_id", "order_seed", "query_set"]
    suspects = table.join(same.select(key).unique(), on=key, how="semi", nulls_equal=True)
    scored = pl.format("{}:{}", "row", "token").sort().str.join(",")
    options = suspects.drop_nulls("token").group_by(*key, "option").agg(scored.alias("scored"))
    alike = options.filter(pl.struct(*key, "scored").is_duplicated())
    same = same.join(alike, on=[*key, "option"], how="semi", nulls_equal=True)
    if not same.is_empty():
        prompt, token = same.select("prompt_id", "token").row(0)
        labels = same.filter(prompt_id=prompt, token=token)["option"].unique().sort().to_list()
        raise UsageError(
            f"Prompt {prompt!r} has options {' and '.join(map(repr, labels))} with the same token"
            f" {token}. Use continuations that begin differently."
        )


class ChangedPrompt(NamedTuple):
    """A prompt whose content differs in two tables; as text, its id and order."""

    prompt: str
    order: int | None
    column: str
    stored: object
    """Value of the column in the stored table."""
    new: object

    def __str__(self) -> str:
        return f"{self.prompt!r}{'' if self.order is None else f' (order {self.order})'}"


def check_unchanged(name: str, table: pl.DataFrame, stored: pl.DataFrame) -> None:
    """Refuse other content of a stored prompt: a union would mix both."""
    if (changed := changed_prompt(table, stored)) is not None:
        raise UsageError(
            f"Prompt {changed} is in the bank's {name!r} with another {changed.column!r}. Give"
            " changed prompts other ids, or store them under another name."
        )


def changed_prompt(table: pl.DataFrame, stored: pl.DataFrame) -> ChangedPrompt | None:
    """The first prompt whose content differs in two tables, or None.

    Text and answer belong to a prompt, whatever the tokenizer. All other columns are compared in
    rows of one query set.
    """
    in_stored = {*stored.columns}
    shared = [c for c in table.columns if c in in_stored and c != REVISION]
    parts = [stored.select(shared), table.select(shared)]
    both = pl.concat(parts, how="vertical_relaxed")  # whole numbers may have become broken ones
    old, new = both.head(len(stored)), both.tail(len(table))
    others = [c for c in shared if c not in (*PROMPT_KEY, *_CONTENT)]
    return (
        # In any query set, because a changed text has other queries.
        _difference(old, new, _PROMPT, _CONTENT)
        or _difference(old, new, PROMPT_KEY, (*_CONTENT, *others))
    )


def _difference(
    old: pl.DataFrame, new: pl.DataFrame, key: Sequence[str], columns: Sequence[str]
) -> ChangedPrompt | None:
    """The first row of two tables with the same key and another value.

    Rows are matched once, whatever the number of columns: a join for each of 10,000 took 34 s, and
    a join on long texts would copy them.
    """
    before, now = (
        part.select(key).with_row_index("at").unique(key, keep="first", maintain_order=True)
        for part in (old, new)
    )
    pairs = now.join(before, on=key, nulls_equal=True, maintain_order="left")
    for column in columns:
        differs = new[column][pairs["at"]].ne_missing(old[column][pairs["at_right"]])
        if differs.any():
            pair = pairs.row(int(differs.arg_true()[0]), named=True)
            values = old[column][pair["at_right"]], new[column][pair["at"]]
            return ChangedPrompt(pair["prompt_id"], pair["order_seed"], column, *values)
    return None


def _check_columns(table: pl.DataFrame) -> None:
    schema = table.schema
    for i, (name, dtype) in enumerate(PROMPTS_SCHEMA.items()):
        column = table.columns[i] if i < table.width else None
        if column != name or schema[name] != dtype:
            actual = f"{column!r} ({schema[column]})" if column is not None else "nothing"
            raise UsageError(
                f"Prompts column {i + 1} is {actual}; it must be {name!r} ({dtype}). The first"
                f" columns are {', '.join(PROMPTS_SCHEMA)}."
            )
    for name in table.columns[len(PROMPTS_SCHEMA) :]:
        dtype = schema[name]
        if name == REVISION and name == table.columns[-1] and dtype == pl.Int64:
            continue
        check_name(name, "prompts column")
        if name in RESERVED_COLUMNS:
            raise UsageError(f"Prompts column {name!r} has a reserved name; rename it.")
        if dtype not in _METADATA_TYPES:
            raise UsageError(f"Prompts column {name!r} is {dtype}; use text, numbers or booleans.")
