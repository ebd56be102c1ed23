"""Which prompts change most over checkpoints; tidy rows."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.prompts.scores import PromptScores


class RunMoves(NamedTuple):
    """How far the options of prompts move over the checkpoints of one model and run."""

    scores: PromptScores
    """Those of the last checkpoints; the prompts and options are those of all."""
    checkpoints: int
    """Number of checkpoints."""
    table: pl.DataFrame
    """As `movements` returns it."""


def movements(parts: Iterable[PromptScores]) -> pl.DataFrame:
    """How far each prompt's probabilities move over the checkpoints, the largest change first.

    `parts` are consecutive checkpoints of one model and run, at least one part.
    The movement of an option is its largest minus its smallest share over the checkpoints that
    have it; that of a prompt is its options' largest. If no prompt has two options, it is the
    probability that moves (`PromptScores.measure`); of a sentence that is the product over its
    tokens, so short ones move most.

    Returns
    -------
    One row per prompt × order that is scored anywhere: model, run, prompt_id, order_seed, option
    (the one with the largest movement; the first of equal ones), movement, low, low_step, high,
    high_step (the first such checkpoint; null is the release). Equal movements, to 12 decimals of a
    share, are in the order of the prompts.
    """
    (moves,) = moves_of_runs(parts)
    return moves.table


def moves_of_runs(parts: Iterable[PromptScores]) -> Iterator[RunMoves]:
    """The movements of each model and run, whose parts follow each other."""
    for _, of_run in groupby(parts, lambda part: (part.model, part.run)):
        all_steps: list[int | None] = []
        for scores in of_run:
            values = scores.values()
            if not all_steps:
                low, high = np.full((2, values.shape[1]), [[np.inf], [-np.inf]])
                lowest, highest = np.zeros((2, values.shape[1]), np.int64)
            for row, step in enumerate(values, start=len(all_steps)):
                lower, higher = step < low, step > high  # false for NaN
                low[lower], lowest[lower] = step[lower], row
                high[higher], highest[higher] = step[higher], row
            all_steps += scores.steps
        low[np.isinf(low)] = np.nan  # scored nowhere
        steps = pl.Series(all_steps, dtype=pl.Int64)
        prompt, option = _largest_options(scores, high - low)
        table = _named(scores, prompt, option).with_columns(
            movement=(high - low)[option],
            low=low[option],
            low_step=steps.gather(lowest[option]),
            high=high[option],
            high_step=steps.gather(highest[option]),
        )
        yield RunMoves(scores, len(all_steps), table)


def prompt_rows(scores: PromptScores) -> pl.DataFrame:
    """Everything as tidy rows, one per checkpoint × option, by step.

    Returns
    -------
    Columns model, run, step (null is the release), prompt_id, order_seed, option, is_answer,
    logprob (nats), probability, share, rank; null if not scored, rank also if the option has
    several tokens.
    """
    c, o = scores.logprob.shape
    about = scores.options.select("prompt", "option", "is_answer").with_columns(
        scores.prompts.select("prompt_id", "order_seed")[scores.options["prompt"]]
    )
    rank = scores.rank.ravel()
    return pl.DataFrame(
        {
            "model": [scores.model] * (c * o),
            "run": [scores.run] * (c * o),
            "step": pl.Series(scores.steps, dtype=pl.Int64).gather(np.repeat(np.arange(c), o)),
        }
    ).with_columns(
        about[np.tile(np.arange(o), c)].select("prompt_id", "order_seed", "option", "is_answer"),
        logprob=pl.Series(scores.logprob.ravel()).fill_nan(None),
        probability=pl.Series(np.exp(scores.logprob).ravel()).fill_nan(None),
        share=pl.Series(scores.share().ravel()).fill_nan(None),
        rank=pl.when(pl.Series(rank > 0)).then(pl.Series(rank)),
    )


def _largest_options(scores: PromptScores, size: NDArray[np.float64]) -> tuple[Codes, Codes]:
    """Index and largest option of each prompt whose size is not NaN, the largest first.

    Shares are rounded: two of them that add up to 1 move equally, but for rounding.
    """
    if scores.measure == "share":
        size = np.round(size, 12)
    prompt = scores.options["prompt"].to_numpy()
    present = np.flatnonzero(~np.isnan(size))
    order = present[np.lexsort((present, -size[present], prompt[present]))]
    option = order[np.flatnonzero(np.diff(prompt[order], prepend=-1))]
    option = option[np.argsort(-size[option], kind="stable")]
    return prompt[option], option


def _named(scores: PromptScores, prompt: Codes, option: Codes) -> pl.DataFrame:
    return scores.prompts[prompt].select(
        pl.lit(scores.model).alias("model"),
        pl.lit(scores.run).alias("run"),
        "prompt_id",
        "order_seed",
        scores.options["option"].gather(option),
    )
