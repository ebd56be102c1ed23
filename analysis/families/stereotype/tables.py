"""Shares of sentences in which a model prefers the pronoun, or the gender, of the stereotype.

The tables that `shares_of` takes have one row per checkpoint and expected sentence: `hit`, 1 if the
stereotype is preferred, ½ for a tie, else 0, null without a score of each order where these are
averaged first; `tied`; `orders`, how many it has, and the `most` that it can have; and `sd`, the
deviation between option orders.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.families.stereotype import ACCURACY
from logitbank.analysis.frames.batches import CHECKPOINTS
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, CHECKPOINT_SCHEMA, PromptSums
from logitbank.analysis.stats.summary import summarise
from logitbank.errors import BankError
from logitbank.wording import checkpoint_name

COUNTS = {
    **CHECKPOINT_SCHEMA, "type": pl.Int64, "kind": pl.String, "sd": pl.Float64,
    **dict.fromkeys(("orders", "tied", "missing", "expected"), pl.Int64),
}  # fmt: skip
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
    """The sentences of a kind of question at all checkpoints."""

    kind: str
    items: Items
    """Whether each sentence prefers the stereotype; groups are the type and the kind."""
    counts: pl.DataFrame
    """Rows of `COUNTS`."""


def shares_of(rows: pl.DataFrame, *, kind: str) -> Shares:
    """Sentences at all checkpoints, and how many have which orders."""
    rows = rows.with_columns(kind=pl.lit(kind))
    known = pl.col("hit").is_not_null()
    counts = rows.group_by(*CHECKPOINT, "type", "kind").agg(
        sd=pl.col("sd").drop_nulls().first().fill_null(float("nan")),
        orders=pl.col("orders").filter(known).max().fill_null(0),
        tied=pl.col("tied").filter(known).sum(),
        missing=pl.len() - (known & (pl.col("orders") == pl.col("most"))).sum(),
        expected=pl.len(),
    )
    items = rows.select(*CHECKPOINT, "type", "kind", item="sentence_id", value="hit")
    columns = (pl.col(name).cast(dtype) for name, dtype in COUNTS.items())
    return Shares(kind, gather_items([items]), counts.select(columns))


def pronoun_hits(pronouns: PromptSums) -> pl.DataFrame:
    """Whether the original pronoun has the greater mean score over both orders.

    Raises
    ------
    BankError
        A prompt has another number of options.
    """
    score, answer = pl.col("logprob"), pl.col("is_answer").fill_null(False)
    prompts = (
        pronouns.all_rows.with_columns(
            pl.col("sentence_id").cast(pl.String), pl.col("type").cast(pl.Int64, strict=False)
        )
        .group_by(*SENTENCE, "order", maintain_order=True)
        .agg(
            own=score.filter(answer).sum(),
            other=score.filter(~answer).sum(),
            scored=score.is_not_null().all(),
            two=(pl.len() == 2) & (answer.sum() == 1),
            prompt_id=pl.col("prompt_id").min(),
        )
    )
    if len(wrong := prompts.filter(~pl.col("two"))):
        row = wrong.row(0, named=True)
        raise BankError(
            f"Prompt {row['prompt_id']!r} of {checkpoint_name(row)} does not have two options, one "
            "of them the answer. Name one prompt set with both options of each prompt. "
            f"({len(wrong):,} such prompts)"
        )
    own, other = pl.col("own").mean(), pl.col("other").mean()
    hit = pl.when(own == other).then(0.5).otherwise((own > other).cast(pl.Float64))
    return prompts.group_by(SENTENCE, maintain_order=True).agg(
        hit=pl.when(pl.col("scored").all()).then(hit), tied=(own == other).cast(pl.UInt32),
        orders=pl.len(), most=pl.len(), sd=pl.lit(None, pl.Float64),
    )  # fmt: skip


def gender_hits(items: Items, expected: pl.DataFrame) -> pl.DataFrame:
    """Whether the gender of the stereotype is preferred, the mean over the orders that there are.

    `items` are `preferences`; a prompt is its own sentence. `expected` has model, type, sentence_id
    and `most`.
    """
    parts = list[pl.DataFrame]()
    for start in range(0, len(items.checkpoints), CHECKPOINTS):
        some = np.arange(len(items.checkpoints))[start : start + CHECKPOINTS]
        rows = items.rows(some).with_columns(type=pl.lit(TYPE, pl.Int64), sentence_id="item")
        by_order = rows.group_by(*CHECKPOINT, "type", "order").agg(pl.col("value").mean())
        spread = by_order.group_by(*CHECKPOINT, "type").agg(
            sd=pl.col("value").sort().std(ddof=1)  # the same bits each time
        )
        means = rows.group_by(SENTENCE, maintain_order=True).agg(
            hit=pl.col("value").mean(), tied=(pl.col("value") == 0.5).sum(), orders=pl.len()
        )
        parts.append(means.join(spread, on=[*CHECKPOINT, "type"], nulls_equal=True))
    hits = pl.concat(parts)
    begun = hits.select(CHECKPOINT).unique().join(expected, on="model")
    return begun.join(hits, on=SENTENCE, how="left", nulls_equal=True)


def with_extremes(changes: pl.DataFrame, gap: pl.DataFrame) -> pl.DataFrame:
    """The significant change points of the gap; of a run without any, its smallest and largest gap.

    These two have the kind `extremes`, and are among the checkpoints of the search.
    """
    found = changes.filter(pl.col("kind") != "none")
    rows = []
    for row in changes.join(found, on=["model", "run"], how="anti").iter_rows(named=True):
        steps = gap.filter(
            pl.col("step") >= (row["from_step"] or 0), pl.col("delta").is_not_nan(),
            model=row["model"], run=row["run"],
        )  # fmt: skip
        if len(steps):
            sizes = steps["delta"].abs()
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
        both = items.at(ends["at"].to_numpy().astype(np.int64))
        moved = summarise(both, [ACCURACY]).with_columns(
            measure=pl.lit(shares.kind), kind=pl.lit(row["kind"]),
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
