"""How often a model gives an occupation the pronoun of its stereotype: shares of sentences.

A row of a frame is the score of one of the two answers of a sentence, under an order in which it
names both. Knows no prompt set.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import polars as pl

from logitbank.analysis.frames.batches import NoRowsError, check_apart, each_with_rows
from logitbank.analysis.frames.pieces import AGAIN, CHECKPOINT, sum_in_any_order
from logitbank.analysis.stats.from_baseline import BASELINE, beside_baseline, items_of
from logitbank.analysis.stats.shares import standard_error, with_wilson
from logitbank.errors import BankError
from logitbank.wording import checkpoint_name

SCHEMA = {
    "model": pl.String,
    "run": pl.String,
    "step": pl.Int64,
    "measure": pl.String,
    "type": pl.Int64,
    "accuracy": pl.Float64,
    "accuracy_stderr": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "sd": pl.Float64,
    "sentences": pl.Int64,
    "orders": pl.Int64,
    "tied": pl.Int64,
    "missing": pl.Int64,
    "expected": pl.Int64,
    **BASELINE,
}
Sentences = Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]
"""Of comparisons and of what was asked: `averaged` or `by_order`."""


class Measured(NamedTuple):
    """What is made of the comparisons of a few checkpoints."""

    begun: pl.DataFrame
    """Checkpoints and the types that they have any score of."""
    table: pl.DataFrame
    items: pl.DataFrame
    """Each sentence's share, for differences in pairs."""


def measured(
    rows: pl.DataFrame, sentences: Sentences, expected: pl.DataFrame, *, whole: bool, measure: str
) -> Measured:
    """Shares of the sentences of some checkpoints.

    Parameters
    ----------
    rows
        Comparisons.
    expected
        model, type, sentence_id and `most`, the orders that a sentence has.
    whole
        Whether that is what was asked, so that a checkpoint has a row for each of its types.
    """
    begun = _begun(rows)
    if whole:
        begun = begun.select(CHECKPOINT).unique().join(_types(expected), on="model")
    hits = sentences(rows, expected)
    return Measured(begun, _table(hits, expected, begun, measure), _items(hits))


def joined(parts: Sequence[Measured]) -> pl.DataFrame:
    """The table of all checkpoints, each beside the first of its run."""
    check_apart([part.begun for part in parts])
    items = [part.items for part in parts]
    table = pl.concat([part.table for part in parts])
    return beside_baseline(table, items, ("type",)).select(SCHEMA.keys())


def measured_in_turn(
    frames: Sequence[pl.LazyFrame],
    sentences: Sentences,
    expected: pl.DataFrame | None,
    *,
    family: str,
    measure: str,
) -> pl.DataFrame:
    """One frame after another; before, where nobody says what was asked, what is in all of them."""
    whole = expected is not None
    first = [comparisons(frames[0], family)] if not whole and len(frames) == 1 else []
    if expected is None:
        expected = most_of(orders_of(rows) for rows in first or _each(frames, family))
    return joined(
        [
            measured(rows, sentences, expected, whole=whole, measure=measure)
            for rows in first or _each(frames, family)
        ]
    )


def _each(frames: Sequence[pl.LazyFrame], family: str) -> Iterator[pl.DataFrame]:
    return each_with_rows(frames, lambda frame: comparisons(frame, family))


def _items(hits: pl.DataFrame) -> pl.DataFrame:
    return items_of(hits, ("type",), item="sentence_id", value=pl.col("hit"))


def _begun(rows: pl.DataFrame) -> pl.DataFrame:
    """Checkpoints and the types that they have any score of: each gets a row."""
    return rows.select(*CHECKPOINT, "type").unique()


def _types(known: pl.DataFrame) -> pl.DataFrame:
    return known.select("model", "type").unique()


def orders_of(rows: pl.DataFrame) -> pl.DataFrame:
    """model, type, sentence_id, most: the orders that a checkpoint has at most."""
    sentence = [*CHECKPOINT, "type", "sentence_id"]
    return _most(rows.group_by(sentence).agg(most=pl.len()))


def most_of(orders: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The same of several, as they come."""
    return reduce(lambda known, more: _most(pl.concat([known, more])), orders)


def _most(orders: pl.DataFrame) -> pl.DataFrame:
    return orders.group_by("model", "type", "sentence_id").agg(pl.col("most").max())


def comparisons(rows: pl.LazyFrame, family: str) -> pl.DataFrame:
    """One row per checkpoint, type, sentence and order: score of the answer and of the other."""
    key = [*CHECKPOINT, "type", "sentence_id", "order"]
    score = pl.col("score").cast(pl.Float64)
    answer = pl.col("is_answer").fill_null(False)
    comparisons = (
        rows.with_columns(pl.col("model", "run", "prompt_id", "sentence_id").cast(pl.String))
        .group_by(key)
        .agg(
            own=score.filter(answer).sum(),
            other=score.filter(~answer).sum(),
            answers=answer.sum(),
            options=pl.len(),
            finite=score.is_finite().fill_null(False).all(),
            prompt_id=pl.col("prompt_id").min(),
        )
        .sort(key, nulls_last=True)
        .collect()
    )
    if comparisons.is_empty():
        raise no_score(family)
    for invalid, what, then in (
        (
            comparisons.filter((pl.col("options") != 2) | (pl.col("answers") != 1)),
            "does not have two options, one of them the answer",
            "scan one prompt set with both options of each prompt",
        ),
        (
            comparisons.filter(~pl.col("finite")),
            "has a score that is not finite",
            AGAIN,
        ),
    ):
        if len(invalid):
            row = invalid.row(0, named=True)
            raise BankError(
                f"prompt {row['prompt_id']!r} of {checkpoint_name(row)} {what} "
                f"({len(invalid):,} such prompts); {then}"
            )
    return comparisons


def no_score(family: str) -> NoRowsError:
    return NoRowsError(f"there is no score of {family} to compare; extract its prompts first")


def averaged(rows: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Orders averaged before the comparison; only sentences with all the orders of the model."""
    sentence = [*CHECKPOINT, "type", "sentence_id"]
    means = rows.group_by(sentence).agg(pl.col("own", "other").mean(), orders=pl.len())
    whole = _with_most(means, known).filter(pl.col("orders") == pl.col("most"))
    return whole.with_columns(
        hit=_hit(), tied=(pl.col("own") == pl.col("other")), sd=pl.lit(float("nan"))
    )


def _with_most(means: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    return means.join(known, on=["model", "type", "sentence_id"], nulls_equal=True)


def by_order(rows: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Each order compared by itself, then averaged within the sentence: over those that it has."""
    sentence = [*CHECKPOINT, "type", "sentence_id"]
    hits = rows.with_columns(hit=_hit(), tied=pl.col("own") == pl.col("other"))
    per_order = hits.group_by(*CHECKPOINT, "type", "order").agg(pl.col("hit").mean())
    spread = per_order.group_by(*CHECKPOINT, "type").agg(
        sd=pl.col("hit").sort().std(ddof=1).fill_null(float("nan"))  # the same bits each time
    )
    means = hits.group_by(sentence).agg(pl.col("hit").mean(), pl.col("tied").sum(), orders=pl.len())
    return _with_most(means, known).join(spread, on=[*CHECKPOINT, "type"], nulls_equal=True)


def _hit() -> pl.Expr:
    """1, 0, or ½ for a tie."""
    greater = (pl.col("own") > pl.col("other")).cast(pl.Float64)
    return pl.when(pl.col("own") == pl.col("other")).then(0.5).otherwise(greater)


def _table(
    sentences: pl.DataFrame, known: pl.DataFrame, begun: pl.DataFrame, measure: str
) -> pl.DataFrame:
    """A row for every checkpoint and type in `begun`; NaN where no sentence is left."""
    keys = [*CHECKPOINT, "type"]
    expected = known.group_by("model", "type").agg(expected=pl.len())
    counts = ("sentences", "orders", "tied", "whole")
    numbers = sentences.group_by(keys).agg(
        accuracy=sum_in_any_order("hit") / pl.len(),  # else equal ones would not tie
        sd=pl.col("sd").first(),
        sentences=pl.len().cast(pl.Int64),
        orders=pl.col("orders").max().cast(pl.Int64),
        tied=pl.col("tied").sum().cast(pl.Int64),
        whole=(pl.col("orders") == pl.col("most")).sum(),
    )
    table = (
        begun.join(numbers, on=keys, how="left", nulls_equal=True)
        .join(expected, on=["model", "type"], nulls_equal=True)
        .with_columns(pl.col(counts).fill_null(0), pl.col("accuracy", "sd").fill_null(float("nan")))
        .with_columns(
            measure=pl.lit(measure),
            missing=pl.col("expected").cast(pl.Int64) - pl.col("whole").cast(pl.Int64),
            accuracy_stderr=standard_error(pl.col("accuracy"), pl.col("sentences")),
        )
    )
    return with_wilson(table, "accuracy", "sentences").select(
        pl.col(name).cast(dtype) for name, dtype in SCHEMA.items() if name not in BASELINE
    )
