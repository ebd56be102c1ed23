"""Scores of options as arrays, checkpoint × token, of a few checkpoints of a model and run.

The tokens are those that a prompt set has for the model, whether or not they are scored. Where the
score of each is among the rows of a query set is searched once. `PromptScores` are sums over the
tokens of an option; the arrays of WinoBias are cells of tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.batches import Batch, Batches, Place, SetScores
from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expected import expected_query_sets
from logitbank.store.format.schema import PROMPTS_SCHEMA, SCORES_SCHEMA

PROMPT_ORDER = ["prompt_id", "order_seed"]
_LAYOUT = (
    *PROMPT_ORDER, "piece", "option", "continuation", "token", "is_answer", "query_set", "row"
)  # fmt: skip


class Layout(NamedTuple):
    """The prompts of a model, their options, and the t tokens of all options."""

    prompts: pl.DataFrame
    """(p) one row per prompt × order: prompt_id, order_seed, text, answer, the set's own
    columns; or those of them that were requested."""
    options: pl.DataFrame
    """(o) one row per prompt × order × option, in prompt order: prompt (index into `prompts`),
    option, continuation (of all tokens), is_answer, pieces (number of tokens)."""
    places: Sequence[Mapping[str, Codes]]
    """For each bank and query set, (n,) the index of the token of each row of its prompts."""

    @property
    def first(self) -> Codes:
        """(o,) index of each option's first token."""
        pieces = self.options["pieces"].to_numpy()
        return np.asarray(np.cumsum(pieces) - pieces, np.int64)

    @property
    def tokens(self) -> int:
        """t, the number of tokens."""
        return int(self.options["pieces"].sum())


def layout_of(tables: Sequence[pl.DataFrame]) -> Layout:
    """The layout of tables of prompts, one for each bank, of the query sets of a model.

    Prompts and options are in the order of their first appearance. A token that several query sets
    have is one token. A prompt may have no option.
    """
    table = pl.concat(
        (each.with_columns(_bank=pl.lit(at)) for at, each in enumerate(tables)), how="diagonal"
    )
    own = [name for name in table.columns if name not in (*PROMPTS_SCHEMA, "_bank")]
    prompts = table.unique(PROMPT_ORDER, keep="first", maintain_order=True)
    numbers = prompts.select(PROMPT_ORDER).with_row_index("prompt").cast({"prompt": pl.Int64})
    named = (
        table.filter(pl.col("token").is_not_null())
        .select("_bank", *_LAYOUT)
        .join(numbers, on=PROMPT_ORDER, nulls_equal=True, maintain_order="left")
        .drop(PROMPT_ORDER)
    )
    option = ["prompt", "option"]
    pieces = named.unique([*option, "piece"], keep="first", maintain_order=True)
    options = pieces.select(*option, "continuation", "is_answer", pieces=pl.lit(1, pl.Int64))
    if options.select(option).is_duplicated().any():  # else 0.05 s of 15,840 prompts are saved
        options = pieces.group_by(option, maintain_order=True).agg(
            pl.col("continuation").sort_by("piece").str.join(""),
            pl.col("is_answer").first(),
            pieces=pl.len().cast(pl.Int64),
        )
    options = options.sort("prompt", maintain_order=True)
    first = options.select(*option, first=pl.col("pieces").cum_sum() - pl.col("pieces"))
    tokens = named.join(first, on=option, maintain_order="left").select(
        *("_bank", "query_set", "row"),
        index=pl.col("first") + pl.col("piece").rank("dense").over(option) - 1,
    )
    places: list[dict[str, Codes]] = [{} for _ in tables]
    scored = tokens.filter(pl.col("row").is_not_null())
    for (bank, query_set), rows in scored.partition_by("_bank", "query_set", as_dict=True).items():
        places[bank][str(query_set)] = rows["index"].cast(pl.Int64).to_numpy()
    texts = [name for name in ("text", "answer") if name in table.columns]
    return Layout(prompts.select(*PROMPT_ORDER, *texts, *own), options, places)


class TokenScores(NamedTuple):
    """Scores of c checkpoints of a model and run, and of the t tokens of a layout."""

    model: str
    run: str
    steps: tuple[int | None, ...]
    """(c) ascending; None is the release, and last."""
    values: Mapping[str, NDArray[Any]]
    """(c, t) by column of scores; 0 without a score."""
    scored: NDArray[np.bool_]
    """(c, t)"""


def read_tokens(batch: Batch, layout: Layout, columns: Sequence[str]) -> TokenScores:
    """Columns of the scores of a batch. A token that two deposits have is that of the first."""
    row = {place: at for at, place in enumerate(batch.places)}
    shape = len(batch.places), layout.tokens
    scored = np.zeros(shape, bool)
    types = {name: pl.Series(dtype=SCORES_SCHEMA[name]).to_numpy().dtype for name in columns}
    values = {name: np.zeros(shape, dtype) for name, dtype in types.items()}
    sources = [
        (one, query_set, index)
        for one, places in zip(batch.scores, layout.places, strict=True)
        for query_set, index in places.items()
    ]
    for one, query_set, index in reversed(sources):
        found = (deposit for place in batch.places for deposit in one.deposits.get(place, ()))
        deposits = [deposit for deposit in found if deposit.query_set == query_set]
        whole = np.array_equal(index, np.arange(shape[1]))  # a slice takes a third of the time
        for at, rows, read in one.prompts.matrix_rows(deposits, columns) if deposits else ():
            checkpoint = deposits[at].checkpoint
            c = row[checkpoint.model, checkpoint.run, checkpoint.step]
            tokens: slice | Codes = index if rows is None else index[rows]
            if rows is None and whole:
                tokens = slice(None)
            scored[c, tokens] = True
            for name, each in read.items():
                values[name][c, tokens] = each
    model, run, _ = batch.places[0]
    return TokenScores(model, run, tuple(step for *_, step in batch.places), values, scored)


class Dense:
    """The scores of a prompt set as arrays, of a few checkpoints at a time."""

    def __init__(
        self, batches: Batches, columns: Sequence[str], of_prompts: Sequence[str] | None = None
    ) -> None:
        self._batches, self._columns = [*batches.parts], columns
        sets = {id(one): one for batch in batches.parts for one in batch.scores}
        self.layouts = layouts([*sets.values()], of_prompts)
        """The layout of each model."""

    @property
    def checkpoints(self) -> list[Place]:
        """Model, run and step of all checkpoints, in order, with or without scores."""
        return [place for batch in self._batches for place in batch.places]

    def divided(self, most: int) -> "Iterator[Dense]":
        """The same of at most so many checkpoints at a time, unless a batch has more."""
        part = copy(self)
        part._batches = []
        for batch in self._batches:
            if part._batches and len(part.checkpoints) + len(batch.places) > most:
                yield part
                part = copy(part)
                part._batches = []
            part._batches.append(batch)
        yield part

    def __iter__(self) -> Iterator[TokenScores]:
        for batch in self._batches:
            yield read_tokens(batch, self.layouts[batch.places[0][0]], self._columns)


def layouts(scores: Sequence[SetScores], columns: Sequence[str] | None = None) -> dict[str, Layout]:
    """The layout of each model of the deposits; models with the same query sets share theirs.

    `columns` are those of the prompts, all if None: their texts take 50 MB for WinoBias.
    """
    wanted = pl.all() if columns is None else pl.col({*_LAYOUT, *columns})
    tables = [one.table.select(wanted).collect() for one in scores]
    expected = [expected_query_sets(one.bank, one.name) for one in scores]
    made: dict[tuple[frozenset[str], ...], Layout] = {}
    found = dict[str, Layout]()
    for model in dict.fromkeys(model for one in scores for model, *_ in one.deposits):
        key = tuple(of_models.get(model, frozenset()) for of_models in expected)
        if key not in made:
            made[key] = layout_of([
                table.filter(pl.col("query_set").is_in(list(names)))
                for table, names in zip(tables, key, strict=True)
            ])  # fmt: skip
        found[model] = made[key]
    return found
