"""The tables of a trade-off, from both curves of each model and run."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.stats.bootstrap import Interval, central_interval
from logitbank.errors import UsageError

Flags = NDArray[np.bool_]
NAN = float("nan")
_SERIES = {"model": pl.String, "run": pl.String}
CHOICES = {
    **_SERIES,
    "max_accuracy_loss": pl.Float64,
    "best_step": pl.Int64,
    **dict.fromkeys(("best_performance", "gap_at_best"), pl.Float64),
    "step": pl.Int64,
    **dict.fromkeys(("performance", "gap"), pl.Float64),
    "searched": pl.Int64,
    **dict.fromkeys(
        ("gap_before", "gap_after", "performance_change", "fairness_change", "chosen_share"),
        pl.Float64,
    ),
}
PAIRS = {
    **_SERIES,
    **dict.fromkeys(("before", "after"), pl.Int64),
    **dict.fromkeys(
        ("performance_before", "performance_after", "performance_change", "performance_low",
         "performance_high", "delta_before", "delta_after", "fairness_change", "fairness_low",
         "fairness_high"),
        pl.Float64,
    ),
    "before_may_be_zero": pl.Boolean,
}  # fmt: skip


class Joined(NamedTuple):
    """Both curves of one model and run at the steps that both have, in order of step."""

    model: str
    run: str
    steps: list[int]
    performance: Floats
    """(c,)"""
    delta: Floats
    """(c,) the gap with its sign, if it has one."""
    performance_draws: Floats
    """(b, c); NaN without a standard error, no rows without resamples."""
    delta_draws: Floats
    """(b, c) likewise."""


def fairest(performance: Floats, gap: Floats, max_loss: float) -> NDArray[np.int64]:
    """Index of the smallest gap among points that lose at most `max_loss` against the best.

    (…, c) to (…); of equal gaps the better performance, then the earlier point.
    """
    masked = np.where(within_loss(performance, max_loss), gap, np.inf)
    least = masked == masked.min(axis=-1, keepdims=True)
    chosen: NDArray[np.int64] = np.where(least, performance, -np.inf).argmax(axis=-1)
    return chosen


def within_loss(performance: Floats, max_loss: float) -> Flags:
    """(…, c) whether a point loses at most `max_loss` against the best."""
    best = performance.max(axis=-1, keepdims=True)
    # Differences of shares such as 0.50 − 0.48 are off by a rounding error.
    allowed: Flags = performance >= best - max_loss - 1e-12 * np.maximum(np.abs(best), 1)
    return allowed


def size_interval(signed: Interval) -> Interval:
    """Interval of a size, from that of the value with its sign: from 0 if that contains 0.

    Quantiles of the draws' sizes would leave out a size near 0 itself, as draws are larger.

    >>> low, high = size_interval(Interval(np.array([-3.0, -1.0]), np.array([-2.0, 4.0])))
    >>> low.tolist(), high.tolist()
    ([2.0, 0.0], [3.0, 4.0])
    """
    low, high = np.abs(signed.low), np.abs(signed.high)
    within = (signed.low <= 0) & (signed.high >= 0)
    return Interval(np.where(within, 0.0, np.minimum(low, high)), np.maximum(low, high))


def increase(before: Floats, after: Floats) -> Floats:
    """Fairness increase in percent from gaps with or without sign; NaN if it was zero."""
    size = np.abs(before)
    with np.errstate(divide="ignore", invalid="ignore"):
        change: Floats = np.where(size > 0, 100 * (size - np.abs(after)) / size, NAN)
    return change


def curve_table(curves: Sequence[Joined]) -> pl.DataFrame:
    """Both curves and their intervals."""
    tables = []
    for one in curves:
        performance = central_interval(one.performance_draws)
        delta = central_interval(one.delta_draws)
        gap = size_interval(delta)
        tables.append(
            pl.DataFrame(
                {
                    "model": one.model,
                    "run": one.run,
                    "step": pl.Series(one.steps, dtype=pl.Int64),
                    "performance": one.performance,
                    "performance_low": performance.low,
                    "performance_high": performance.high,
                    "delta": one.delta,
                    "delta_low": delta.low,
                    "delta_high": delta.high,
                    "gap": np.abs(one.delta),
                    "gap_low": gap.low,
                    "gap_high": gap.high,
                }
            )
        )
    return pl.concat(tables)


def _certain(one: Joined) -> bool:
    """Whether every value of both curves has draws."""
    return bool(
        len(one.delta_draws)
        and np.isfinite(one.delta_draws).all()
        and np.isfinite(one.performance_draws).all()
    )


def choice_table(curves: Sequence[Joined], loss: float) -> pl.DataFrame:
    """The fairest checkpoint within a loss, in percentage points, and the gaps beside it.

    The smallest of many gaps is small partly by chance: `searched` counts the checkpoints within
    the loss, and the gaps of the checkpoints before and after the chosen one stand beside it.
    """
    rows: list[tuple[Any, ...]] = []
    limit = loss / 100
    for one in curves:
        gap = np.abs(one.delta)
        best, at = (int(fairest(one.performance, gap, most)) for most in (0.0, limit))
        share = NAN
        if _certain(one):
            drawn = fairest(one.performance_draws, np.abs(one.delta_draws), limit)
            share = float((drawn == at).mean())
        rows.append(
            (
                *(one.model, one.run, float(loss)),
                *(one.steps[best], one.performance[best], gap[best]),
                *(one.steps[at], one.performance[at], gap[at]),
                int(within_loss(one.performance, limit).sum()),
                gap[at - 1] if at else NAN,
                gap[at + 1] if at + 1 < len(gap) else NAN,
                100 * (one.performance[at] - one.performance[best]),
                float(increase(gap[best], gap[at])),
                share,
            )
        )
    return pl.DataFrame(rows, schema=CHOICES, orient="row")


def pair_table(curves: Sequence[Joined], pair: tuple[int, int] | None) -> pl.DataFrame:
    """What changes between two checkpoints, for every run that has both.

    Raises
    ------
    UsageError
        No run has both steps.
    """
    if pair is None:
        return pl.DataFrame(schema=PAIRS)
    rows = [_pair(one, *pair) for one in curves if {*pair} <= {*one.steps}]
    if not rows:
        one = curves[0]
        missing = [step for step in pair if step not in one.steps] or list(pair)
        shown = ", ".join(map(str, one.steps[:12])) + (" …" if len(one.steps) > 12 else "")
        raise UsageError(
            f"Step {missing[0]} of the pair is not a step of both curves; "
            f"{one.model} {one.run} has {shown}."
        )
    return pl.DataFrame(rows, schema=PAIRS, orient="row")


def _pair(one: Joined, before: int, after: int) -> tuple[Any, ...]:
    b, a = one.steps.index(before), one.steps.index(after)
    performance, draws = one.performance, one.performance_draws
    lost = central_interval(100 * (draws[:, [a]] - draws[:, [b]]))
    start = central_interval(one.delta_draws[:, [b]])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = one.delta_draws[:, [a]] / one.delta_draws[:, [b]]
    left = size_interval(central_interval(ratio))
    fairness = Interval(100 * (1 - left.high), 100 * (1 - left.low))
    # A gap without sign has draws on both sides of zero only if it is no larger than its error.
    unsure = None if np.isnan(start.low[0]) else bool(start.low[0] <= 0 <= start.high[0])
    return (
        *(one.model, one.run, before, after),
        *(performance[b], performance[a], 100 * (performance[a] - performance[b])),
        *(lost.low[0], lost.high[0]),
        *(one.delta[b], one.delta[a], float(increase(one.delta[b], one.delta[a]))),
        *(fairness.low[0], fairness.high[0], unsure),
    )
