"""How much of the probability each option of any prompt has, and how often the answer wins."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.families.options.score import Score, compared, without_condition
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.prompts.scores import PromptScores
from logitbank.analysis.prompts.view import prompt_rows
from logitbank.analysis.stats.shares import (
    clustered_error,
    effective_count,
    with_t_interval,
    with_wilson,
)

SHARES = pl.Schema(
    {
        "model": pl.String(), "run": pl.String(), "step": pl.Int64(), "prompt_set": pl.String(),
        "option": pl.String(), "prompts": pl.Int64(), "sentences": pl.Int64(),
        "share": pl.Float64(), "low": pl.Float64(), "high": pl.Float64(),
        "probability": pl.Float64(), "rank": pl.Float64(), "missing": pl.Int64(),
    }
)  # fmt: skip
ANSWERS = pl.Schema(
    {
        "model": pl.String(), "run": pl.String(), "step": pl.Int64(), "prompt_set": pl.String(),
        "prompts": pl.Int64(), "sentences": pl.Int64(), "accuracy": pl.Float64(),
        "low": pl.Float64(), "high": pl.Float64(), "tied": pl.Int64(), "missing": pl.Int64(),
    }
)  # fmt: skip
ROWS = 100_000
"""Tidy rows at once: they are wide, and 400,000 took 100 MB more, and as long."""
OPTIONS = 12
"""Different options beyond which they are told apart only as answer and other, all together."""


class Shares(NamedTuple):
    """What `option_shares` found."""

    shares: pl.DataFrame
    answers: pl.DataFrame
    unconditional: int


def option_shares(each: Iterable[PromptScores], prompt_set: str, *, score: Score = "sum") -> Shares:
    """The tables `shares` and `answers` of `OptionScores`, and its `unconditional`.

    `each` is as `prompt_scores` gives them, with `first_piece` where the score is of the first.

    Raises
    ------
    UsageError
        The score is `pmi`, and no prompt has a condition.
    """
    shares, answers = [pl.DataFrame(schema=SHARES)], [pl.DataFrame(schema=ANSWERS)]
    unconditional = 0
    for whole in each:
        scores = compared(whole, score)
        if score == "pmi":
            unconditional = max(unconditional, without_condition(scores))
        labelled = scores.options["option"].n_unique() <= OPTIONS
        for part in _parts(scores):
            rows = _rows(part)
            shares.append(_of_set(_shares(rows, labelled=labelled), prompt_set, SHARES))
            answers.append(_of_set(_answers(rows), prompt_set, ANSWERS))
    return Shares(pl.concat(shares), pl.concat(answers), unconditional)


def _of_set(table: pl.DataFrame, prompt_set: str, schema: pl.Schema) -> pl.DataFrame:
    return table.with_columns(prompt_set=pl.lit(prompt_set)).select(schema.names()).cast(schema)


def _parts(scores: PromptScores) -> Iterator[PromptScores]:
    """A few checkpoints at a time, as their tidy rows are wide."""
    at_once = max(1, ROWS // max(1, scores.logprob.shape[1]))
    for first in range(0, len(scores.steps), at_once):
        part = slice(first, first + at_once)
        yield replace(
            scores, steps=scores.steps[part], logprob=scores.logprob[part], rank=scores.rank[part]
        )


def _rows(scores: PromptScores) -> pl.DataFrame:
    """Tidy rows, each with its `sentence`; the one option of a prompt has no share.

    Prompts of one `sentence_id` are one draw, not several: the sentence is what is resampled. A
    prompt without one is its own.
    """
    prompt = scores.options["prompt"].to_numpy()
    several = (np.bincount(prompt)[prompt] > 1) if len(prompt) else np.zeros(0, dtype=bool)
    names = [name for name in ("sentence_id", "prompt_id") if name in scores.prompts.columns]
    sentence = scores.prompts.select(pl.coalesce(pl.col(names).cast(pl.String))).to_series()
    tile = np.tile(np.arange(len(prompt)), len(scores.steps))
    return prompt_rows(scores).with_columns(
        share=pl.when(pl.Series(several, dtype=pl.Boolean)[tile]).then(pl.col("share")),
        sentence=sentence[prompt][tile],
    )


def _shares(rows: pl.DataFrame, *, labelled: bool) -> pl.DataFrame:
    answer = pl.when("is_answer").then(pl.lit("answer")).otherwise(pl.lit("other"))
    option = pl.col("option").cast(pl.String) if labelled else answer
    rows = rows.with_columns(option=option)
    prompt, unscored = pl.struct("prompt_id", "order_seed"), pl.col("probability").is_null()
    missing = rows.group_by(*CHECKPOINT, "option", maintain_order=True).agg(
        missing=prompt.filter(unscored).n_unique()
    )
    each = rows.drop_nulls("probability")
    if not labelled:  # the others of a prompt together, so that both shares add up to 1
        rank = pl.when(pl.len() == 1).then(pl.col("rank").first())
        if_any = pl.when(pl.col("share").count() > 0).then(pl.col("share").sum())
        each = each.group_by(
            *CHECKPOINT, "option", "prompt_id", "order_seed", "sentence", maintain_order=True
        ).agg(share=if_any, probability=pl.col("probability").sum(), rank=rank)
    key = [*CHECKPOINT, "option"]
    prompts = each.group_by(*key, "prompt_id", "sentence", maintain_order=True).agg(
        pl.col("share", "probability", "rank").mean()
    )
    shares = prompts.group_by(key, maintain_order=True).agg(
        pl.len().alias("prompts"), pl.col("share", "probability", "rank").mean()
    )
    errors = clustered_error(prompts, key, "share", cluster="sentence")
    shares = shares.join(errors, on=key, how="left", nulls_equal=True, maintain_order="left")
    table = with_t_interval(_joined(missing, shares, key), "share", bounds=(0, 1))
    return table.rename({"clusters": "sentences"})


def _joined(missing: pl.DataFrame, values: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """With a row where nothing was found: of no prompts, and null."""
    every = missing.join(values, on=key, how="left", nulls_equal=True, maintain_order="left")
    return every.with_columns(pl.col("prompts", "clusters").fill_null(0))


def _answers(rows: pl.DataFrame) -> pl.DataFrame:
    share, answer = pl.col("share"), pl.col("is_answer").fill_null(False)
    answered = rows.drop_nulls("share").group_by(
        *CHECKPOINT, "prompt_id", "order_seed", "sentence", maintain_order=True
    ).agg(own=share.filter(answer).max(), other=share.filter(~answer).max())  # fmt: skip
    answered = answered.drop_nulls(["own", "other"])
    missing = _without_an_option(rows, answer)
    p_answer, other = pl.col("own"), pl.col("other")
    prompts = answered.group_by(*CHECKPOINT, "prompt_id", "sentence", maintain_order=True).agg(
        right=(p_answer > other).mean(), tied=(p_answer == other).any()
    )
    accuracy = prompts.group_by(CHECKPOINT, maintain_order=True).agg(
        prompts=pl.len(), accuracy=pl.col("right").mean(), tied=pl.col("tied").sum()
    )
    errors = clustered_error(prompts, CHECKPOINT, "right", cluster="sentence")
    accuracy = accuracy.join(errors, on=CHECKPOINT, nulls_equal=True, maintain_order="left")
    accuracy = accuracy.with_columns(worth=effective_count("accuracy", "prompts"))
    table = with_wilson(_joined(missing, accuracy, [*CHECKPOINT]), "accuracy", "worth")
    bounds = pl.col("low", "high").fill_nan(None)
    return table.with_columns(bounds, pl.col("tied").fill_null(0), sentences="clusters")


def _without_an_option(rows: pl.DataFrame, answer: pl.Expr) -> pl.DataFrame:
    """By checkpoint that was asked for answers: `missing`, the prompts without a score of each."""
    prompts = rows.group_by(*CHECKPOINT, "prompt_id", "order_seed", maintain_order=True).agg(
        asked=answer.any() & (~answer).any(), unscored=pl.col("probability").is_null().any()
    )
    return (
        prompts.filter("asked")
        .group_by(CHECKPOINT, maintain_order=True)
        .agg(missing=pl.col("unscored").sum())
    )
