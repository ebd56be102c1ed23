"""Shares of sentences in which a model prefers the pronoun, or the gender, of the stereotype.

A row of a frame is the score of one of the two answers of a sentence, in an order that names both.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.families.stereotype import MEASURES
from logitbank.analysis.frames.batches import CHECKPOINTS, NoRowsError, check_disjoint
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, FIX_NOT_FINITE
from logitbank.analysis.stats.shares import standard_error
from logitbank.analysis.stats.summary import BASELINE, summarise
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
TYPE = 2
"""The type of WinoBias that is meant if none is named."""
OVER_CHANGE = {
    **dict.fromkeys(("model", "run", "measure"), pl.String),
    "type": pl.Int64,
    "kind": pl.String,
    **dict.fromkeys(("before", "after"), pl.Int64),
    **dict.fromkeys(("delta_before", "delta_after", "change", "low", "high"), pl.Float64),
    "sentences": pl.Int64,
}
SENTENCE = (*CHECKPOINT, "type", "sentence_id")


class Shares(NamedTuple):
    """The shares of a measure at all checkpoints, and the sentences behind them."""

    measure: str
    table: pl.DataFrame
    items: Items


def share_table(
    parts: Iterable[pl.DataFrame],
    sentences: Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame],
    expected: pl.DataFrame | None,
    *,
    measure: str,
) -> Shares:
    """Shares of sentences at all checkpoints, each beside the first of its run.

    Parameters are those of `share_items`. A checkpoint has a row for each type of its model.
    """
    hits = list[pl.DataFrame]()
    items = gather_items(share_items(parts, sentences, expected, kept=hits))
    keys = [*CHECKPOINT, "type"]
    counts = pl.concat(hits).group_by(keys).agg(
        sd=pl.col("sd").first(),
        orders=pl.col("orders").max().cast(pl.Int64),
        tied=pl.col("tied").sum().cast(pl.Int64),
        whole=(pl.col("orders") == pl.col("most")).sum().cast(pl.Int64),
    )  # fmt: skip
    table = summarise(items, MEASURES).with_columns(
        pl.col("type").cast(pl.Int64),
        measure=pl.lit(measure),
        accuracy="value",
        sentences="items",
        expected=pl.col("items") + pl.col("missing"),
        accuracy_stderr=standard_error(pl.col("value"), pl.col("items")),
    )
    joined = table.drop("sd", "missing").join(
        counts, on=keys, how="left", nulls_equal=True, maintain_order="left"
    )
    known = joined.with_columns(
        pl.col("orders", "tied", "whole").fill_null(0), pl.col("sd").fill_null(float("nan"))
    )
    whole = known.with_columns(missing=pl.col("expected") - pl.col("whole"))
    columns = (pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())
    return Shares(measure, whole.select(columns), items)


def with_extremes(changes: pl.DataFrame, gap: pl.DataFrame) -> pl.DataFrame:
    """The significant change points of the gap; of a run without any, its smallest and largest gap.

    These two have the kind `extremes`, and are among the checkpoints of the search.
    """
    found = changes.filter(pl.col("kind") != "none")
    rows = []
    for row in changes.join(found, on=["model", "run"], how="anti").iter_rows(named=True):
        steps = gap.filter(
            pl.col("step") >= (row["from_step"] or 0), pl.col("gap").is_not_nan(),
            model=row["model"], run=row["run"],
        )  # fmt: skip
        if len(steps):
            sizes = steps["gap"]
            ends = steps[[sizes.arg_min() or 0, sizes.arg_max() or 0]].sort("step")
            names = ("earliest", "latest", "mean_before", "mean_after")
            values = (*ends["step"], *ends["delta"])
            rows.append({**row, "kind": "extremes", **dict(zip(names, values, strict=True))})
    return pl.concat([found, pl.DataFrame(rows, schema=changes.schema)])


def over_changes(shares: Shares, changes: pl.DataFrame) -> pl.DataFrame:
    """How shares move over each change of the gap, paired over sentences: rows of `OVER_CHANGE`.

    From the last scored checkpoint before the change to the first one after it.
    """
    items, parts = shares.items, [pl.DataFrame(schema=OVER_CHANGE)]
    scored = items.checkpoints.with_row_index("at").filter(items.scored)
    for row in changes.iter_rows(named=True):
        steps = scored.filter(pl.col("step").is_not_null(), model=row["model"], run=row["run"])
        starts = pl.col("step") < row["earliest"] + (row["kind"] != "change point")
        ends = pl.concat(
            [steps.filter(starts).tail(1), steps.filter(pl.col("step") >= row["latest"]).head(1)]
        )
        if ends["step"].n_unique() < 2:
            continue
        moved = summarise(items.at(ends["at"].to_numpy().astype(np.int64)), MEASURES).with_columns(
            measure=pl.lit(shares.measure), kind=pl.lit(row["kind"]),
            before="baseline_step", after="step",
            delta_before=row["mean_before"], delta_after=row["mean_after"],
            change="from_baseline", low="from_baseline_low", high="from_baseline_high",
            sentences="common",
        )  # fmt: skip
        parts.append(
            moved.filter(step=ends["step"][1]).select(
                pl.col(name).cast(dtype) for name, dtype in OVER_CHANGE.items()
            )
        )
    return pl.concat(parts)


def share_items(
    parts: Iterable[pl.DataFrame],
    sentences: Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame],
    expected: pl.DataFrame | None,
    *,
    kept: list[pl.DataFrame] | None = None,
) -> Iterator[pl.DataFrame]:
    """Items of a few checkpoints at a time: whether a sentence prefers the stereotype, by type.

    `parts` are comparisons, one row per sentence and order. `sentences` is `averaged` or
    `by_order`; what it returns is also added to `kept`. `expected` has model, type, sentence_id and
    `most`, the number of orders. By default, a part expects its own sentences and the most orders
    of any checkpoint in it.
    """
    begun = list[pl.DataFrame]()
    for rows in parts:
        known = expected_orders(rows) if expected is None else expected
        hits = sentences(rows, known)
        if kept is not None:
            kept.append(hits)
        begun.append(rows.select(CHECKPOINT).unique())
        every = begun[-1].join(known.drop("most"), on="model")
        found = every.join(hits.select(*SENTENCE, "hit"), on=SENTENCE, how="left", nulls_equal=True)
        yield found.rename({"sentence_id": "item", "hit": "value"})
    check_disjoint(begun)


def expected_orders(rows: pl.DataFrame) -> pl.DataFrame:
    """model, type, sentence_id, most: the orders that a checkpoint has at most."""
    counts = rows.group_by(SENTENCE).agg(most=pl.len())
    return counts.group_by("model", "type", "sentence_id").agg(pl.col("most").max())


def pronoun_comparisons(rows: pl.LazyFrame, family: str) -> pl.DataFrame:
    """The score of the original pronoun, `own`, and of the `other`, by sentence and order."""
    key = [*SENTENCE, "order"]
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
        (comparisons.filter(~pl.col("finite")), "has a score that is not finite", FIX_NOT_FINITE),
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


def gender_comparisons(items: Items) -> Iterator[pl.DataFrame]:
    """One row per checkpoint, prompt and order with a score; a prompt is its own sentence."""
    for start in range(0, len(items.checkpoints), CHECKPOINTS):
        rows = items.rows(np.arange(len(items.checkpoints))[start : start + CHECKPOINTS])
        yield rows.select(
            *CHECKPOINT, "order", type=pl.lit(2, pl.Int64), sentence_id="item", hit="value",
            tied=pl.col("value") == 0.5,
        )  # fmt: skip


def averaged(rows: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Orders averaged before the comparison; only sentences with all the orders of the model."""
    means = rows.group_by(SENTENCE, maintain_order=True).agg(
        pl.col("own", "other").mean(), orders=pl.len()
    )
    whole = _with_most(means, known).filter(pl.col("orders") == pl.col("most"))
    own, other = pl.col("own"), pl.col("other")
    hit = pl.when(own == other).then(0.5).otherwise((own > other).cast(pl.Float64))
    return whole.with_columns(hit=hit, tied=own == other, sd=pl.lit(float("nan")))


def by_order(rows: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Each order compared by itself, then averaged over the orders that a sentence has."""
    per_order = rows.group_by(*CHECKPOINT, "type", "order").agg(pl.col("hit").mean())
    spread = per_order.group_by(*CHECKPOINT, "type").agg(
        sd=pl.col("hit").sort().std(ddof=1).fill_null(float("nan"))  # the same bits each time
    )
    means = rows.group_by(SENTENCE, maintain_order=True).agg(
        pl.col("hit").mean(), pl.col("tied").sum(), orders=pl.len()
    )
    return _with_most(means, known).join(
        spread, on=[*CHECKPOINT, "type"], nulls_equal=True, maintain_order="left"
    )


def _with_most(means: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """In the order of the sentences: sums of their shares then have the same bits each time."""
    on = ["model", "type", "sentence_id"]
    return means.join(known, on=on, nulls_equal=True, maintain_order="left")
