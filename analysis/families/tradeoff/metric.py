"""Performance against fairness over training: what a fairer checkpoint costs.

Frames in, frames out. Any number a checkpoint can be set against any other: the joined curves,
the Pareto front, the fairest checkpoint at a bounded loss, the change between two checkpoints,
and where either curve changes its level.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from logitbank.analysis.families.tradeoff.curves import alone, checked_curve, interval_kind, joined
from logitbank.analysis.families.tradeoff.tables import (
    change_table,
    choice_table,
    curve_table,
    pair_table,
    scale_of,
)
from logitbank.analysis.results.tables import Result
from logitbank.errors import UsageError

ALLOWANCES = (1.0, 2.0, 5.0)
"""Points that may be given up, where nothing else is asked for."""
LOWER_IS_BETTER = frozenset(
    {
        *("ppl", "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "loss"),
        *("ter", "likelihood_diff", "likelihood_difference"),
    }
)


@dataclass(frozen=True, slots=True)
class TradeOff(Result):
    """What `tradeoff_metric` found. Every table begins with model and run.

    The gap is the absolute value of `delta`. Changes of performance are in `unit` of the settings:
    `points`, hundredths of a share, or the metric's own unit; positive is better. `low` and `high`
    are 95 % intervals, NaN where a side has no uncertainty.
    """

    tradeoff: pl.DataFrame
    """Both curves at every step that both have; whether it is on the Pareto front (greatest
    performance, smallest gap), and in what share of the resamples."""
    choices: pl.DataFrame
    """For each allowance `give_up`: the step of smallest gap among those that lose at most so much
    against the best one, and the share of resamples in which it is that step."""
    pairs: pl.DataFrame
    """From checkpoint `before` to `after`: change of performance and of fairness, in percent of the
    gap before."""
    change_points: pl.DataFrame
    """The most likely change of level of each curve, `performance` and `delta`."""
    settings: Mapping[str, str | int | float | bool | None]


def tradeoff_metric(
    performance: pl.DataFrame,
    gap: pl.DataFrame,
    *,
    metric: str = "acc",
    gap_name: str = "gap",
    higher_is_better: bool | None = None,
    give_up: float | None = None,
    pair: tuple[int, int] | None = None,
    rename: Mapping[str, str] | None = None,
    resamples: int = 1000,
    seed: int = 0,
    from_step: int | None = None,
) -> TradeOff:
    r"""Set a performance curve against a gap, checkpoint by checkpoint.

    The front are the checkpoints that no other beats in one of the two without losing in the
    other. Fairness increase from :math:`b` to :math:`a` is
    :math:`100(|\Delta_b|-|\Delta_a|)/|\Delta_b|`, NaN where the gap before is zero. Intervals come
    from draws: those of the sides, or normal ones from standard errors, drawn independently for
    every checkpoint.

    Parameters
    ----------
    performance, gap
        Columns model, step, value; optional run (else `main`), stderr, and draws (list of resampled
        values, those of one resample at the same place in every row). The gap's values may have a
        sign. Releases (null step) are left out.
    metric, gap_name
        What the two are, for messages and names.
    higher_is_better
        By default false for perplexities and losses, by the metric's name, else true.
    give_up
        Largest loss of performance, in `unit`; 1, 2 and 5 points by default, and nothing for what
        is no share.
    pair
        Steps before and after.
    rename
        Models of the performance to their names in the gap.
    resamples
        Draws where a side has standard errors only; 0 gives no intervals at all.
    from_step
        First step of the search for change points; by default the first one after the untrained
        phase, whose value differs from that of step 0 by more than its own noise.

    Raises
    ------
    UsageError
        Columns that are lacking, a standard error that is none, no model, run or step in common, a
        step of the pair that no run has, or an allowance that is negative or infinite.
    BankError
        A value that is not finite.

    References
    ----------
    Early stopping for fairness: arXiv 2506.01709. Its change of fairness is that of
    `fairness_change`. Ours: the front, the allowance, intervals, and change points
    (`change_points`).

    Examples
    --------
    >>> steps = {"model": "m", "step": [8, 16, 32]}
    >>> found = tradeoff_metric(
    ...     pl.DataFrame({**steps, "value": [0.30, 0.48, 0.50]}),
    ...     pl.DataFrame({**steps, "value": [0.10, 0.05, 0.73]}),
    ...     pair=(32, 16),
    ... )
    >>> found.tradeoff.filter("on_front")["step"].to_list()
    [16, 32]
    >>> found.pairs.select(pl.col("fairness_change", "performance_change").round(1)).row(0)
    (93.2, -2.0)
    """
    if give_up is not None and not 0 <= give_up < math.inf:
        raise UsageError(f"an allowance of {give_up:g} is none; give up 0 or more")
    if resamples < 0:
        raise UsageError(f"resamples {resamples} is negative; give a number, or 0")
    sides = checked_curve(performance, f"performance ({metric})"), checked_curve(gap, gap_name)
    better = _base(metric) not in LOWER_IS_BETTER if higher_is_better is None else higher_is_better
    curves = joined(*sides, rename=rename, resamples=resamples, seed=seed)
    scale = scale_of(curves, higher_is_better=better)
    allowances: Sequence[float] = ALLOWANCES if scale.unit == "points" else ()
    unpaired = alone(*sides, rename=rename)
    kinds = [interval_kind(side) if resamples else None for side in sides]
    return TradeOff(
        tradeoff=curve_table(curves, scale),
        choices=choice_table(curves, scale, allowances if give_up is None else (give_up,)),
        pairs=pair_table(curves, scale, pair),
        change_points=change_table(curves, from_step=from_step, seed=seed),
        settings={
            "metric": metric,
            "gap": gap_name,
            "higher_is_better": better,
            "unit": scale.unit,
            "give_up": give_up,
            "resamples": resamples,
            "performance_interval": kinds[0],
            "gap_interval": kinds[1],
            "performance_alone": unpaired[0],
            "gap_alone": unpaired[1],
        },
    )


def _base(metric: str) -> str:
    return metric.partition(",")[0].rsplit(" ", maxsplit=1)[-1]
