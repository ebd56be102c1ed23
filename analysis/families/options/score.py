"""What the options of a prompt are compared by: sums, means, first tokens, or information.

It knows dense scores, and no tables.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

import polars as pl

from logitbank.analysis.families.options.conditions import after_conditions, asked
from logitbank.analysis.prompts.scores import PromptScores
from logitbank.errors import UsageError

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
