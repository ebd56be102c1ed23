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
    tokenizer_digest: str
    queries: tuple[Query, ...]
    """Distinct, in the order in which the prompts first need them."""
    table: pl.DataFrame
    """Columns of `PROMPTS_SCHEMA` with `query`, the index into `queries`, in place of
    `query_set` and `row`, then the prompts' own columns. A prompt without options has one row,
    whose `option`, `continuation`, `token` and `is_answer` are null."""
    notes: tuple[str, ...] = ()
    """What was left out for this tokenizer, one line each."""


def option_table(
    prompts: Sequence[Prompt],
    *,
    queries: Sequence[int],
    option_ids: Mapping[str, Sequence[int]],
) -> pl.DataFrame:
    """A row per option of each prompt, and one per prompt without options."""
    schema = dict(PROMPTS_SCHEMA.items()) | {"query": pl.Int32()}
    shared = pl.DataFrame(
        {
            "prompt_id": [p.id for p in prompts],
            "order_seed": [p.order_seed for p in prompts],
            "piece": [0] * len(prompts),
            "text": [p.text for p in prompts],
            "answer": [p.answer for p in prompts],
            "query": queries,
        },
        schema_overrides=schema,
    ).with_columns(_own_columns([p.columns for p in prompts]))
    rows: list[tuple[int, str | None, str | None, int | None, bool | None]] = []
    for i, prompt in enumerate(prompts):
        if not prompt.options:
            rows.append((i, None, None, None, None))
        for o in prompt.options:
            token = option_ids[o.text][0]
            is_answer = None if prompt.answer is None else o.label == prompt.answer
            rows.append((i, o.label, o.text, token, is_answer))
    names = ("option", "continuation", "token", "is_answer")
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
    listed = pl.DataFrame(rows, schema=schema, orient="row")
    shared = pl.DataFrame({"prompt_id": ids, "text": texts}).with_columns(_own_columns(columns))
    return _in_order(
        shared[listed["at"]]
        .with_columns(listed.drop("at"))
        .with_columns(
            order_seed=pl.lit(None, pl.Int32),
            answer=pl.lit(None, pl.String),
            is_answer=pl.lit(None, pl.Boolean),
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
