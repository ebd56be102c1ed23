"""Which prompts move through training, and which differ between two checkpoints; tidy rows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.prompts.scores import PromptScores, each_series, prompt_scores
from logitbank.errors import UsageError
from logitbank.store import Bank
from logitbank.store.read.choose import Names, checkpoints_chosen
from logitbank.wording import plain_step

Between = tuple[int | None, int | None]
"""Two training steps; None is the release."""


def changes(
    bank: Bank,
    prompts: str,
    *,
    between: Between | None = None,
    models: Names = None,
    runs: Names = None,
) -> Iterator[tuple[PromptScores, pl.DataFrame]]:
    """`movements` of every model and run, or their `differences` between two checkpoints.

    One after the other, each with scores of its prompts: of `movements` those of the last few
    checkpoints, which are read a few at a time. Where `between` is given, only those two
    checkpoints are read, of the models and runs that have both.

    Raises
    ------
    UsageError
        No such model and run has the two checkpoints.
    BankError
        The bank has no such prompts, or no deposit of them by such models.
    """
    if between is None:
        parts = prompt_scores(bank, prompts, models=models, runs=runs, few=True)
        each = (Moving.of(of_series) for of_series in each_series(parts))
        return ((moving.scores, moving.table()) for moving in each)
    before, after = between
    orders: dict[tuple[str, str], set[int | None]] = {}
    deposits = bank.deposits_of(prompts)
    for deposit in checkpoints_chosen(deposits, models=models, runs=runs) if deposits else ():
        checkpoint = deposit.checkpoint
        orders.setdefault((checkpoint.model, checkpoint.run), set()).add(checkpoint.step)
    if orders and not any(steps.issuperset(between) for steps in orders.values()):
        for (model, run), steps in orders.items():
            for step in between:
                if step not in steps:
                    raise _no_step(f"{model} {run}", steps, step)
    both = prompt_scores(bank, prompts, models=models, runs=runs, steps=set(between))
    return (
        (scores, differences(scores, before, after))
        for scores in both
        if set(scores.steps) == set(between)
    )


def movements(scores: PromptScores) -> pl.DataFrame:
    """How far each prompt's probabilities move through training, the farthest first.

    The movement of an option is its largest minus its smallest share over the checkpoints that
    have it; that of a prompt is its options' largest. Where no prompt has two options, it is the
    probability that moves (`PromptScores.measure`); of a sentence that is the product over its
    tokens, so short ones move most.

    Returns
    -------
    One row per prompt × order that is scored anywhere: model, run, prompt_id, order_seed, option
    (which moves most; of equals the first), movement, low, low_step, high, high_step (the first
    such checkpoint; null is the release). Equal movements, to 12 decimals of a share, are in the
    order of the prompts.
    """
    return Moving.of([scores]).table()


@dataclass(frozen=True, slots=True)
class Moving:
    """The lowest and the highest share of each option of one model and run, and where they are."""

    scores: PromptScores
    """Its last checkpoints: prompts and options are those of all."""
    steps: tuple[int | None, ...]
    low: Floats
    """(o,) inf where it is scored nowhere."""
    high: Floats
    """(o,) likewise −inf."""
    lowest: Codes
    """(o,) index into `steps`."""
    highest: Codes
    """(o,) likewise."""

    @classmethod
    def of(cls, parts: Iterable[PromptScores]) -> "Moving":
        """Of checkpoints in parts, at least one, each let go before the next one is asked for."""
        steps, ends = list[int | None](), list[tuple[Floats, Codes]]()
        for part in parts:
            o = len(part.options)
            ends = ends or [
                (np.full(o, bound), np.zeros(o, np.int64)) for bound in (np.inf, -np.inf)
            ]
            (low, lowest), (high, highest) = ends
            # Shares of all checkpoints side by side took as much memory as the scores.
            for at, values in enumerate(part.each_values(), start=len(steps)):
                for end, place, further in (
                    (low, lowest, values < low),
                    (high, highest, values > high),
                ):
                    end[further], place[further] = values[further], at
            steps += part.steps
        return cls(part, tuple(steps), low, high, lowest, highest)

    def table(self) -> pl.DataFrame:
        """As `movements` gives it."""
        low = np.where(np.isinf(self.low), np.nan, self.low)  # scored nowhere
        high = np.where(np.isinf(self.high), np.nan, self.high)
        prompt, option = _largest(self.scores, high - low)
        steps = pl.Series(self.steps, dtype=pl.Int64)
        return _named(self.scores, prompt, option).with_columns(
            movement=(high - low)[option],
            low=low[option],
            low_step=steps.gather(self.lowest[option]),
            high=high[option],
            high_step=steps.gather(self.highest[option]),
        )


def differences(scores: PromptScores, before: int | None, after: int | None) -> pl.DataFrame:
    """How much each prompt's probabilities differ between two checkpoints, the most first.

    Shares, or where no prompt has two options, probabilities (`PromptScores.measure`).

    Parameters
    ----------
    before, after
        Training steps; None is the release.

    Returns
    -------
    One row per prompt × order that both checkpoints score: model, run, prompt_id, order_seed,
    option (that with the largest difference, whatever its sign; of equals the first), before,
    after, difference (after − before). By the size of the difference; equal ones, to 12 decimals of
    a share, are in the order of the prompts.

    Raises
    ------
    UsageError
        The model and run have no such checkpoint.
    """
    at = [_index(scores, step) for step in (before, after)]
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
    logprob (nats), probability, share, rank; null where not scored, rank also where the option
    has several pieces.
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


def _largest(
    scores: PromptScores, size: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each prompt with a size that is no NaN, its index and its largest option; largest first.

    Two shares that add up to 1 move equally, but for rounding: it decides nothing.
    """
    if scores.measure == "share":
        size = np.round(size, 12)
    prompt = scores.options["prompt"].to_numpy()
    present = np.flatnonzero(~np.isnan(size))
    order = present[np.lexsort((present, -size[present], prompt[present]))]
    option = order[np.flatnonzero(np.diff(prompt[order], prepend=-1))]
    option = option[np.argsort(-size[option], kind="stable")]
    return prompt[option], option


def _named(
    scores: PromptScores, prompt: NDArray[np.int64], option: NDArray[np.int64]
) -> pl.DataFrame:
    return scores.prompts[prompt].select(
        pl.lit(scores.model).alias("model"),
        pl.lit(scores.run).alias("run"),
        "prompt_id",
        "order_seed",
        scores.options["option"].gather(option),
    )


def _index(scores: PromptScores, step: int | None) -> int:
    if step not in scores.steps:
        raise _no_step(f"{scores.model} {scores.run}", scores.steps, step)
    return scores.steps.index(step)


def _no_step(who: str, steps: Iterable[int | None], step: int | None) -> UsageError:
    known = sorted(s for s in steps if s is not None)
    has = [f"{len(known)} from step {known[0]} to {known[-1]}"] if known else []
    has += ["the release"] if None in steps else []
    near = ""
    if step is not None and known:
        near = f" (nearest: {min(known, key=lambda other: abs(other - step))})"
    return UsageError(f"{who} has no {plain_step(step)}{near}; it has {' and '.join(has)}")
