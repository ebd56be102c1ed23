"""The tables of a trade-off: a join of two curves, the choice within a loss, and pairs of steps."""

from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.items import Items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.stats.bootstrap import Interval, with_width
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.shares import Z95
from logitbank.analysis.stats.summary import paired_differences, summarise
from logitbank.errors import UsageError

SERIES = ["model", "run"]
NAN = pl.lit(float("nan"))
_ENDS = ("", "_low", "_high")


class Curve(NamedTuple):
    """A number at every checkpoint, and the items of which it is a measure, if they are known."""

    table: pl.DataFrame
    """Model, run, step, value, stderr, low and high, sorted."""
    items: Items | None = None
    measure: Measure | None = None

    @classmethod
    def of_items(cls, items: Items, measure: Measure) -> "Curve":
        table = summarise(items, [measure], changes=False).filter(pl.col("value").is_not_nan())
        return cls(table.drop_nulls("step"), items, measure)

    def renamed(self, models: dict[str, str]) -> "Curve":
        """The curve of these models, under their new names."""
        own = self.table.filter(pl.col("model").is_in([*models]))
        items = self.items and self.items.renamed(models, {})
        return Curve(own.with_columns(pl.col("model").replace(models)), items, self.measure)

    def change(self, runs: pl.DataFrame, before: int, after: int, factor: Floats) -> Interval:
        """95 % interval of the value at `after` minus `factor` times that at `before`, by run.

        It is paired over the items of both steps. Without items the two are independent.
        """
        if runs.is_empty():
            return Interval(np.empty(0), np.empty(0))
        ends = [runs.select(*SERIES, step=pl.lit(step, pl.Int64)) for step in (before, after)]
        if self.items is not None and self.measure is not None:
            start, end = (self.items.among(each) for each in ends)
            start = start._replace(
                checkpoints=end.checkpoints, values=factor[:, None] * start.values
            )
            found = paired_differences(start, end, [self.measure])
            return Interval(found["low"].to_numpy(), found["high"].to_numpy())
        start_rows, end_rows = (
            each.join(self.table, on=CHECKPOINT, maintain_order="left") for each in ends
        )
        change = end_rows["value"].to_numpy() - factor * start_rows["value"].to_numpy()
        errors = (rows["stderr"].to_numpy() for rows in (end_rows, start_rows))
        half = Z95 * np.hypot(next(errors), factor * next(errors))
        return with_width(Interval(change - half, change + half))


def curve_table(performance: Curve, gap: Curve) -> pl.DataFrame:
    """Both curves with their intervals, at the checkpoints of both."""
    able, fair = (
        side.table.select(*CHECKPOINT, **{f"{name}{end}": end[1:] or "value" for end in _ENDS})
        for side, name in ((performance, "performance"), (gap, "delta"))
    )
    both = able.join(fair, on=CHECKPOINT).sort(CHECKPOINT)
    low, high = size_interval(both["delta_low"].to_numpy(), both["delta_high"].to_numpy())
    return both.with_columns(
        gap=pl.col("delta").abs(), gap_low=pl.Series(low), gap_high=pl.Series(high)
    )


def size_interval(low: Floats, high: Floats) -> Interval:
    """Interval of a size, from that of the value with its sign: from 0 if that contains 0.

    >>> low, high = size_interval(np.array([-3.0, -1.0]), np.array([-2.0, 4.0]))
    >>> low.tolist(), high.tolist()
    ([2.0, 0.0], [3.0, 4.0])
    """
    sizes = np.abs([low, high])
    least = np.where((low <= 0) & (high >= 0), 0.0, sizes.min(axis=0))
    return Interval(least, sizes.max(axis=0))


def choice_table(curves: pl.DataFrame, max_loss: float) -> pl.DataFrame:
    """The smallest gap within a loss, in percentage points, and the gaps beside it.

    Of equal gaps it is that of the better performance, then the earlier one. The smallest of many
    gaps is small partly by chance: `searched` counts the checkpoints within the loss, and the gaps
    of the checkpoints before and after the chosen one stand beside it.
    """
    best = pl.col("performance").max().over(SERIES)
    points = curves.with_columns(
        lost=best - pl.col("performance"),
        gap_before=pl.col("gap").shift(1).over(SERIES).fill_null(NAN),
        gap_after=pl.col("gap").shift(-1).over(SERIES).fill_null(NAN),
    )
    # Differences of shares such as 0.50 − 0.48 are off by a rounding error.
    within = points.filter(pl.col("lost") <= max_loss / 100 + 1e-12)
    within = within.with_columns(searched=pl.len().over(SERIES).cast(pl.Int64))
    of_best = within.filter(pl.col("lost") <= 1e-12)
    chosen, first = (
        each.sort("gap", pl.col("performance").neg(), "step").group_by(SERIES).first()
        for each in (within, of_best)
    )
    first = first.select(
        *SERIES, best_step="step", best_performance="performance", gap_at_best="gap"
    )
    return chosen.join(first, on=SERIES).sort(SERIES).select(
        *SERIES, pl.lit(float(max_loss)).alias("max_accuracy_loss"),
        "best_step", "best_performance", "gap_at_best", "step", "performance", "gap", "searched",
        "gap_before", "gap_after",
        performance_change=100 * (pl.col("performance") - pl.col("best_performance")),
        fairness_change=_increase("gap_at_best", "gap"),
    )  # fmt: skip


def pair_table(
    curves: pl.DataFrame, performance: Curve, gap: Curve, pair: tuple[int, int] | None
) -> pl.DataFrame:
    """Changes between two checkpoints, for every run that has both.

    Raises
    ------
    UsageError
        No run has both steps.
    """
    before, after = pair or (0, 0)
    ends = [curves.filter(step=step) for step in (before, after) if pair] or [curves.clear()] * 2
    rows = ends[0].join(ends[1], on=SERIES, suffix="_after", maintain_order="left")
    if pair and rows.is_empty():
        run = curves.filter(model=curves["model"][0], run=curves["run"][0])
        steps = run["step"].to_list()
        missing = [step for step in pair if step not in steps] or list(pair)
        shown = ", ".join(map(str, steps[:12])) + (" …" if len(steps) > 12 else "")
        raise UsageError(
            f"Step {missing[0]} of the pair is not a step of both curves; "
            f"{run['model'][0]} {run['run'][0]} has {shown}."
        )
    old, new = rows["delta"].to_numpy(), rows["delta_after"].to_numpy()
    lost = performance.change(rows, before, after, np.ones(len(rows)))
    with np.errstate(divide="ignore", invalid="ignore"):
        # The delta method: the error of a ratio r = a/b is that of a − r b, divided by b.
        ratio = new / old
        moved = gap.change(rows, before, after, ratio)
        half = (moved.high - moved.low) / 2 / np.abs(old)
    left = size_interval(ratio - half, ratio + half)
    zero = (pl.col("delta_low") <= 0) & (pl.col("delta_high") >= 0)
    return rows.select(
        *SERIES, before="step", after="step_after",
        performance_before="performance", performance_after="performance_after",
        performance_change=100 * (pl.col("performance_after") - pl.col("performance")),
        performance_low=pl.Series(100 * lost.low), performance_high=pl.Series(100 * lost.high),
        delta_before="delta", delta_after="delta_after",
        fairness_change=_increase("gap", "gap_after"),
        fairness_low=pl.Series(100 * (1 - left.high)),
        fairness_high=pl.Series(100 * (1 - left.low)),
        before_may_be_zero=pl.when(pl.col("delta_low").is_not_nan()).then(zero),
    )  # fmt: skip


def _increase(before: str, after: str) -> pl.Expr:
    """Fairness increase in percent; NaN if the gap before is zero."""
    change = 100 * (pl.col(before) - pl.col(after)) / pl.col(before)
    return pl.when(pl.col(before) > 0).then(change).otherwise(NAN)
