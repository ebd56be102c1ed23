"""What the options of a prompt are compared by: sums, means, first tokens, or information.

For information, a prompt names its condition in the column `condition`, by the id of another prompt
of its set. This module knows dense scores, and no tables.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.prompts.scores import PromptScores
from logitbank.errors import UsageError

CONDITION = "condition"
Score = Literal["sum", "token", "byte", "character", "first", "pmi"]
"""What an option of several tokens is compared by: the sum of its tokens' log-probabilities, that
divided by its tokens, bytes or characters, its first token's alone, or the sum less that after the
prompt's condition."""
MEANINGS: Mapping[Score, str] = {
    "sum": (
        "An option's share is its probability divided by that of all options of the prompt; an "
        "option of several tokens has the product of their probabilities, so that longer ones have "
        "less."
    ),
    "token": "An option is scored by its mean log-probability per token.",
    "byte": (
        "An option is scored by its log-probability divided by its bytes in UTF-8, without the "
        "space before it."
    ),
    "character": (
        "An option is scored by its log-probability divided by its characters, without the space "
        "before it."
    ),
    "first": "An option is scored by its first token alone.",
    "pmi": (
        "An option is scored by its log-probability after the prompt, less that after the prompt's "
        "condition (pointwise mutual information)."
    ),
}
"""What a share is of, by score."""
SHARE_OF_SCORES = (
    "The share of an option is exp of its score, divided by the sum of those of all options of the "
    "prompt; `probability` is exp of the score."
)


def compared(scores: PromptScores, score: Score) -> PromptScores:
    """The prompts that are asked, with what their options are compared by as `logprob`.

    Prompts that are there as conditions of others, and have none themselves, are left out, whatever
    the score. `scores` has first pieces alone where the score is of these.

    Raises
    ------
    UsageError
        The score is PMI, and no prompt has a condition.
    """
    if score == "pmi":
        scores = replace(scores, logprob=scores.logprob - after_conditions(scores))
    return asked(_divided(scores, score))


def _divided(scores: PromptScores, score: Score) -> PromptScores:
    """With log-probabilities per token, byte or character, where they are to be so."""
    text = pl.col("continuation").str.strip_chars_start()
    units = {
        "token": pl.col("pieces"), "byte": text.str.len_bytes(), "character": text.str.len_chars()
    }  # fmt: skip
    if score not in units:
        return scores
    sizes = scores.options.select(units[score].cast(pl.Int64).clip(lower_bound=1)).to_series()
    return replace(scores, logprob=scores.logprob / sizes.to_numpy())


def check_score(score: str) -> None:
    """Refuse what is no `Score`.

    Raises
    ------
    UsageError
        It is none.
    """
    if score not in get_args(Score):
        raise UsageError(f"score {score!r} is unknown; use one of {', '.join(get_args(Score))}")


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
