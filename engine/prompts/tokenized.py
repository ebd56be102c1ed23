"""A prompt set in the ids of one tokenizer: its queries, and the table that points at them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from logitbank.engine.prompts.values import Prompt, Scalar
from logitbank.errors import PromptError
from logitbank.store.format.schema import PROMPTS_SCHEMA, Query


@dataclass(frozen=True, slots=True)
class TokenizedPrompts:
    """A prompt set in the ids of one tokenizer."""

    name: str
    queries: tuple[Query, ...]
    """Distinct, in the order in which the prompts first need them."""
    table: pl.DataFrame
    """Columns of `PROMPTS_SCHEMA` with `query`, the index into `queries`, in place of
    `query_set` and `row`, then the prompts' own columns. A prompt without options has one row,
    whose `option`, `continuation`, `token` and `is_answer` are null."""
    notes: tuple[str, ...] = ()
    """What was left out for this tokenizer, one line each."""


class OptionPiece(NamedTuple):
    """A scored token of an option, and the query that it is read from."""

    query: int
    token: int
    text: str


def option_table(
    prompts: Sequence[Prompt],
    *,
    queries: Sequence[int],
    pieces: Sequence[Sequence[Sequence[OptionPiece]]],
) -> pl.DataFrame:
    """A row per piece of each prompt's options, and one per prompt without options.

    `pieces` has, for each prompt and each of its options, the tokens in order; `queries` is where
    a prompt without options is.
    """
    schema = dict(PROMPTS_SCHEMA.items()) | {"query": pl.Int32()}
    shared = pl.DataFrame(
        {
            "prompt_id": [p.id for p in prompts],
            "order_seed": [p.order_seed for p in prompts],
            "text": [p.text for p in prompts],
            "answer": [p.answer for p in prompts],
        },
        schema_overrides=schema,
    ).with_columns(_own_columns([p.columns for p in prompts]))
    rows: list[tuple[int, int, str | None, str | None, int | None, bool | None, int]] = []
    for i, (prompt, query, of_options) in enumerate(zip(prompts, queries, pieces, strict=True)):
        if not prompt.options:
            rows.append((i, 0, None, None, None, None, query))
        later = 0  # the first pieces of all options are read from one query
        for o, of_option in zip(prompt.options, of_options, strict=True):
            is_answer = None if prompt.answer is None else o.label == prompt.answer
            for at, piece in enumerate(of_option):
                later += at > 0
                number = later if at else 0
                rows.append((i, number, o.label, piece.text, piece.token, is_answer, piece.query))
    names = ("piece", "option", "continuation", "token", "is_answer", "query")
    listed = pl.DataFrame(
        rows, schema={"prompt": pl.Int32(), **{n: schema[n] for n in names}}, orient="row"
    )
    return _in_order(shared[listed["prompt"]].with_columns(listed.drop("prompt")))


class PieceRow(NamedTuple):
    """A scored token, or class of a head, of the prompt at a place in its set."""

    at: int
    piece: int
    continuation: str
    token: int
    query: int
    score_kind: str
    option: str
    answer: str | None


def piece_table(
    rows: Sequence[PieceRow],
    *,
    ids: Sequence[str],
    texts: Sequence[str],
    columns: Sequence[Mapping[str, Scalar]],
) -> pl.DataFrame:
    """A row per piece of each prompt, with its `score_kind`; the rest is of each prompt."""
    schema = {"at": pl.Int64, "piece": pl.Int32, "continuation": pl.String}
    schema |= {"token": pl.Int32, "query": pl.Int32, "score_kind": pl.String, "option": pl.String}
    schema |= {"answer": pl.String}
    listed = pl.DataFrame(rows, schema=schema, orient="row")
    shared = pl.DataFrame({"prompt_id": ids, "text": texts}).with_columns(_own_columns(columns))
    return _in_order(
        shared[listed["at"]]
        .with_columns(listed.drop("at"))
        .with_columns(
            order_seed=pl.lit(None, pl.Int32), is_answer=pl.col("option") == pl.col("answer")
        )
    )


def _own_columns(columns: Sequence[Mapping[str, Scalar]]) -> list[pl.Series]:
    """The prompts' own columns, in the order of their first appearance; null where absent."""
    names = dict.fromkeys(name for of_prompt in columns for name in of_prompt)
    return [_column(name, [of_prompt.get(name) for of_prompt in columns]) for name in names]


def _column(name: str, values: list[Scalar]) -> pl.Series:
    kinds = {type(v) for v in values if v is not None}
    if not kinds:
        return pl.Series(name, values, pl.String)
    if kinds == {int, float}:
        return pl.Series(name, values, pl.Float64, strict=False)
    if len(kinds) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise PromptError(f"column {name!r} holds values of different kinds ({names}); use one")
    return pl.Series(name, values)


def _in_order(table: pl.DataFrame) -> pl.DataFrame:
    """The columns of every prompt table, then the prompts' own."""
    head = [name for name in PROMPTS_SCHEMA if name not in ("query_set", "row")]
    return table.select(*head, "query", pl.exclude(*head, "query"))
