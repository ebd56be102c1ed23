"""Prompts that are conditions of others: what their options would be worth without the question.

A prompt names its condition in the column `condition`, by the id of another prompt of its set.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.prompts.scores import PromptScores
from logitbank.errors import UsageError

CONDITION = "condition"


def after_conditions(scores: PromptScores) -> NDArray[np.float64]:
    """(c, o) log-probabilities, in nats, of each option after the condition of its prompt.

    The condition is the prompt of that id in the same order of options, or in none, and its option
    that of the same label and text; NaN where there is none.

    Raises
    ------
    UsageError
        No prompt has a condition.
    """
    if not _names_conditions(scores):
        raise UsageError(
            "no prompt has a condition, whose scores PMI takes away; name one in the field "
            "`condition` of the prompt file, and extract it"
        )
    prompts = scores.prompts.select("prompt_id", "order_seed", pl.col(CONDITION).cast(pl.String))
    options = scores.options.select(pl.col("option").cast(pl.String), "continuation").with_columns(
        prompts[scores.options["prompt"]]
    )
    key = ["prompt_id", "option", "continuation", "order_seed"]
    places = options.select(key).with_row_index("at")
    own = options.select(pl.col(CONDITION).alias("prompt_id"), *key[1:])
    unordered = own.with_columns(order_seed=pl.lit(None, pl.Int32))
    at = pl.DataFrame(
        {
            str(n): wanted.join(
                places, on=key, how="left", nulls_equal=True, maintain_order="left"
            )["at"]
            for n, wanted in enumerate((own, unordered))
        }
    ).select(pl.coalesce("0", "1"))
    found = at.to_series()
    known = (found.is_not_null() & own["prompt_id"].is_not_null()).to_numpy()
    values = np.full_like(scores.logprob, np.nan)
    values[:, known] = scores.logprob[:, found.to_numpy()[known].astype(np.int64)]
    return values


def asked(scores: PromptScores) -> PromptScores:
    """Without the prompts that are conditions of others and have none themselves."""
    if not _names_conditions(scores):
        return scores
    conditions = scores.prompts[CONDITION].cast(pl.String)
    named = scores.prompts["prompt_id"].is_in(conditions.drop_nulls().implode())
    kept = (conditions.is_not_null() | ~named).to_numpy()
    of_kept = kept[scores.options["prompt"].to_numpy()]
    number = np.cumsum(kept) - 1
    options = scores.options.filter(of_kept)
    return PromptScores(
        *(scores.model, scores.run, scores.steps, scores.prompts.filter(kept)),
        options.with_columns(prompt=pl.Series(number[options["prompt"].to_numpy()])),
        *(scores.logprob[:, of_kept], scores.rank[:, of_kept]),
    )


def without_condition(scores: PromptScores) -> int:
    """How many prompts with options, each order counted, have no condition."""
    conditions = scores.prompts[CONDITION]
    return int(conditions[scores.options["prompt"].unique()].null_count())


def _names_conditions(scores: PromptScores) -> bool:
    prompts = scores.prompts
    return CONDITION in prompts.columns and prompts[CONDITION].null_count() < len(prompts)
