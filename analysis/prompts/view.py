"""Which prompts change most through training, or between two checkpoints; tidy rows."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.prompts.scores import Measure, PromptScores, prompt_scores
from logitbank.errors import UsageError
from logitbank.store import Bank
from logitbank.store.read.choose import Names, checkpoints_chosen
from logitbank.wording import plain_step

Between = tuple[int | None, int | None]
"""Two training steps; None is the release."""


class PromptChanges(NamedTuple):
    """The `movements` or `differences` of every model and run."""

    measure: Measure
    by_run: dict[tuple[str, str], pl.DataFrame]


def changes(
    bank: Bank,
    prompts: str,
    *,
    between: Between | None = None,
    models: Names = None,
    runs: Names = None,
) -> PromptChanges:
    """`movements` of every model and run, or their `differences` between two checkpoints.

    With `between`, only those two checkpoints are read, of the models and runs that have both.

    Raises
    ------
    UsageError
        No such model and run has the two checkpoints.
    BankError
        The bank has no such prompts, or no deposit of them by such models.
    """
    if between is not None:
        _require_steps(bank, prompts, between, models, runs)
    steps = None if between is None else set(between)
    measure: Measure = "probability"
    tables = {}
    for scores in prompt_scores(bank, prompts, models=models, runs=runs, steps=steps):
        if between is None:
            table = movements(scores)
        elif set(scores.steps) == set(between):
            table = differences(scores, *between)
        else:
            continue
        tables[scores.model, scores.run] = table
        measure = scores.measure
    return PromptChanges(measure, tables)


def _require_steps(bank: Bank, prompts: str, between: Between, models: Names, runs: Names) -> None:
    """Raise UsageError unless a model and run has both steps."""
    deposits = bank.deposits(prompts=prompts)
    steps: dict[tuple[str, str], set[int | None]] = {}
    for deposit in checkpoints_chosen(deposits, models=models, runs=runs) if deposits else ():
        checkpoint = deposit.checkpoint
        steps.setdefault((checkpoint.model, checkpoint.run), set()).add(checkpoint.step)
    if not any(known.issuperset(between) for known in steps.values()):
        for (model, run), known in steps.items():
            for step in between:
                if step not in known:
                    raise _no_step(f"{model} {run}", known, step)


def movements(scores: PromptScores) -> pl.DataFrame:
    """How far each prompt's probabilities move through training, the largest change first.

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
    values = scores.values()
    missing, options = np.isnan(values), np.arange(values.shape[1])
    lowest = np.where(missing, np.inf, values).argmin(axis=0)
    highest = np.where(missing, -np.inf, values).argmax(axis=0)
    low, high = values[lowest, options], values[highest, options]
    prompt, option = _largest(scores, high - low)
    steps = pl.Series(scores.steps, dtype=pl.Int64)
    return _named(scores, prompt, option).with_columns(
        movement=(high - low)[option],
        low=low[option],
        low_step=steps.gather(lowest[option]),
        high=high[option],
        high_step=steps.gather(highest[option]),
    )


def differences(scores: PromptScores, before: int | None, after: int | None) -> pl.DataFrame:
    """How much each prompt's probabilities differ between two checkpoints, the most first.

    Shares, or probabilities if no prompt has two options (`PromptScores.measure`).

    Parameters
    ----------
    before, after
        Training steps; None is the release.

    Returns
    -------
    One row per prompt × order that both checkpoints score: model, run, prompt_id, order_seed,
    option (the one with the largest absolute difference; the first of equal ones), before, after,
    difference (after − before). By the size of the difference; equal ones, to 12 decimals of a
    share, are in the order of the prompts.

    Raises
    ------
    UsageError
        The model and run have no such checkpoint.
    """
    for step in (before, after):
        if step not in scores.steps:
            raise _no_step(f"{scores.model} {scores.run}", scores.steps, step)
    at = [scores.steps.index(step) for step in (before, after)]
    values = replace(scores, logprob=scores.logprob[at]).values()
    difference = values[1] - values[0]
    prompt, option = _largest(scores, np.abs(difference))
    return _named(scores, prompt, option).with_columns(
        before=values[0, option], after=values[1, option], difference=difference[option]
    )


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


def _largest(scores: PromptScores, size: NDArray[np.float64]) -> tuple[Codes, Codes]:
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


def _no_step(series: str, steps: Iterable[int | None], step: int | None) -> UsageError:
    known = sorted(s for s in steps if s is not None)
    available = [f"{known[0]} to {known[-1]}"] if known else []
    available += ["release"] if None in steps else []
    nearest = ""
    if step is not None and known:
        nearest = f" (nearest: {min(known, key=lambda other: abs(other - step))})"
    return UsageError(
        f"{series} has no {plain_step(step)}{nearest}. Available steps: {', '.join(available)}."
    )
