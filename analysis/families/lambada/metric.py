"""LAMBADA: is the last word of a passage predicted, and how probable is it.

The word is scored token by token behind the passage and its own earlier tokens (teacher forcing).
"""

import polars as pl

from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import (
    CHECKPOINT,
    PromptSums,
    concat_sorted,
    greedy_match,
)
from logitbank.analysis.frames.reader import Scores
from logitbank.errors import UsageError


def read_items(scores: Scores) -> Items:
    r"""Two items of each example: whether it is correct, and its log-probability in nats.

    An example is correct if every token of the word is the only maximum of its vocabulary row, so
    that greedy decoding writes that word. Perplexity is :math:`\exp(-\frac1N\sum_n\sum_t\ln
    p_{nt})`: its mean is over examples, not over tokens. An example that a checkpoint has in part
    is left out there and counted as missing.

    Raises
    ------
    UsageError, BankError
        Prompts that are no words after a passage, or as `Scores.map_prompts`.

    References
    ----------
    Paperno et al. 2016; the OpenAI variant and the quantities of lm-evaluation-harness
    (`lambada_openai`: `acc`, `perplexity`). Not in the harness: a tie for the largest logit counts
    as wrong; the intervals.
    """
    return _read(scores)[0]


def read_ties(scores: Scores) -> pl.DataFrame:
    """Examples by checkpoint whose last word shares the largest logit (`tied`), which count as
    wrong, and those whose rank is a bound (`inexact`)."""
    return _read(scores)[1]


def _read(scores: Scores) -> tuple[Items, pl.DataFrame]:
    """Items and ties, read once in a report."""

    def read() -> tuple[Items, pl.DataFrame]:
        kind = [name for name in ("score_kind",) if name in scores.columns]
        parts = scores.map_prompts(_part, *kind, family="lambada", more=greedy_match())
        items, ties = zip(*parts, strict=True)
        return gather_items(items), concat_sorted(ties)

    return scores.cached("lambada", read)


def _part(examples: PromptSums) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Items and ties of a few checkpoints."""
    rows = examples.rows
    if "score_kind" in rows.columns and len(other := rows.filter(pl.col("score_kind") != "target")):
        raise UsageError(
            f"Prompt {other['prompt_id'][0]!r} is scored as {other['score_kind'][0]!r}, no word "
            f"after its passage ({len(other):,} such rows). Name a set of LAMBADA's with --prompts."
        )
    values = {"acc": pl.col("correct").cast(pl.Float64), "perplexity": pl.col("logprob")}
    items = pl.concat(
        examples.all_rows.select(*CHECKPOINT, item="prompt_id", part=pl.lit(part), value=value)
        for part, value in values.items()
    )
    return items, rows.group_by(CHECKPOINT).agg(pl.col("tied", "inexact").sum().cast(pl.Int64))
