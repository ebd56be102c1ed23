"""The tables of a trade-off: both curves, the choice within a loss, and pairs of steps."""

from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.families.fairness import DELTA
from logitbank.analysis.families.tradeoff import PERFORMANCE
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.stats.bootstrap import Interval, with_width
from logitbank.analysis.stats.measure import Measure, View
from logitbank.analysis.stats.shares import Z95
from logitbank.analysis.stats.summary import paired_differences, summarise
from logitbank.errors import UsageError

SERIES = ["model", "run"]
NAN = pl.lit(float("nan"))
PAIR, SMALLEST = "pair", "smallest gap"
"""Why two steps are compared."""
POINTS = View(PERFORMANCE, DELTA)
"""Both numbers of a checkpoint, side by side."""


class Quantity(NamedTuple):
    """A number at every checkpoint, and the items of which it is a measure, if they are known."""

    table: pl.DataFrame
    """As `summarise` returns it, at training steps with a value. Without items: model, run, step,
    measure, value, stderr, low and high."""
    measures: tuple[Measure, ...]
    """The number, then others that are shown beside it."""
    items: Items | None = None

    @classmethod
    def of_items(cls, items: Items, *measures: Measure) -> "Quantity":
        table = summarise(items, measures).drop_nulls("step")
        return cls(table.filter(pl.col("value").is_not_nan()), measures, items)

    @property
    def points(self) -> pl.DataFrame:
        """The rows of the number itself."""
        return self.table.filter(measure=self.measures[0].key)

    def renamed(self, models: dict[str, str]) -> "Quantity":
        """That of these models, under their new names."""
        own = self.table.filter(pl.col("model").is_in([*models]))
        items = self.items and self.items.renamed(models, {})
        return self._replace(table=own.with_columns(pl.col("model").replace(models)), items=items)

    def change(self, steps: pl.DataFrame, factor: Floats) -> Interval:
        """95 % interval of the value at step `after` minus `factor` times that at `before`, by run.

        It is paired over the items of both steps. Without items the two are independent.
        """
        ends = [steps.select(*SERIES, step=name) for name in ("before", "after")]
        if self.items is not None:
            start, end = (self.items.among(each) for each in ends)
            start = start._replace(
                checkpoints=end.checkpoints, values=factor[:, None] * start.values
            )
            found = paired_differences(start, end, self.measures[:1])
            return Interval(found["low"].to_numpy(), found["high"].to_numpy())
        start_rows, end_rows = (
            each.join(self.points, on=CHECKPOINT, maintain_order="left") for each in ends
        )
        change = end_rows["value"].to_numpy() - factor * start_rows["value"].to_numpy()
        errors = (rows["stderr"].to_numpy() for rows in (end_rows, start_rows))
        half = Z95 * np.hypot(next(errors), factor * next(errors))
        return with_width(Interval(change - half, change + half))


def common_rows(performance: Quantity, gap: Quantity) -> pl.DataFrame:
    """The measures of both quantities, at the checkpoints of both."""
    both = performance.points.join(gap.points, on=CHECKPOINT, how="semi")
    columns = summarise(gather_items([]), [])
    table = pl.concat([columns, performance.table, gap.table], how="diagonal").with_columns(
        pl.col(pl.Float64).fill_null(NAN), pl.col("common").fill_null(0)
    )
    return table.join(both, on=CHECKPOINT, how="semi").sort(CHECKPOINT, maintain_order=True)


def curve_table(measures: pl.DataFrame) -> pl.DataFrame:
    """Both curves with their intervals, and the size of the gap."""
    both = POINTS.of(measures).drop("items", "clusters", "missing")
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


def pair_table(
    curves: pl.DataFrame,
    performance: Quantity,
    gap: Quantity,
    pair: tuple[int, int] | None,
    max_loss: float,
) -> pl.DataFrame:
    """Changes between two checkpoints of a run: the `pair`, and the choice within a loss.

    Only the pair has intervals: the smallest of several gaps is small partly by chance.

    Raises
    ------
    UsageError
        No run has both steps of the pair.
    """
    rows = pl.concat([_named(curves, pair), _chosen(curves, max_loss)], how="diagonal")
    for end in ("before", "after"):
        numbers = pl.exclude(*SERIES, "step").name.suffix(f"_{end}")
        own = curves.select(*SERIES, pl.col("step").alias(end), numbers)
        rows = rows.join(own, on=[*SERIES, end], maintain_order="left")
    old, new = (rows[f"delta_{end}"].to_numpy() for end in ("before", "after"))
    lost = performance.change(rows, np.ones(len(rows)))
    with np.errstate(divide="ignore", invalid="ignore"):
        # The delta method: the error of a ratio r = a/b is that of a − r b, divided by b.
        ratio = new / old
        moved = gap.change(rows, ratio)
        half = (moved.high - moved.low) / 2 / np.abs(old)
    left = size_interval(ratio - half, ratio + half)
    ends = {
        "performance_low": lost.low, "performance_high": lost.high,
        "fairness_low": 1 - left.high, "fairness_high": 1 - left.low,
    }  # fmt: skip
    zero = (pl.col("delta_low_before") <= 0) & (pl.col("delta_high_before") >= 0)
    return rows.select(
        *SERIES, "choice", "max_accuracy_loss", "searched", "before", "after",
        "performance_before", "performance_after", "delta_before", "delta_after",
        performance_change=100 * (pl.col("performance_after") - pl.col("performance_before")),
        fairness_change=pl.Series(100 * np.where(old != 0, 1 - np.abs(ratio), np.nan)),
        **{n: pl.when(pl.col("choice") == PAIR).then(100 * pl.Series(e)) for n, e in ends.items()},
        before_may_be_zero=pl.when(pl.col("delta_low_before").is_not_nan()).then(zero),
    )  # fmt: skip


def _named(curves: pl.DataFrame, pair: tuple[int, int] | None) -> pl.DataFrame:
    """The runs that have both steps of a pair."""
    before, after = (pl.lit(step, pl.Int64) for step in pair or (None, None))
    runs, others = (curves.filter(pl.col("step") == step) for step in (before, after))
    runs = runs.join(others, on=SERIES, how="semi", maintain_order="left")
    if pair and runs.is_empty():
        run = curves.filter(model=curves["model"][0], run=curves["run"][0])
        steps = run["step"].to_list()
        missing = [step for step in pair if step not in steps] or list(pair)
        shown = ", ".join(map(str, steps[:12])) + (" …" if len(steps) > 12 else "")
        raise UsageError(
            f"Step {missing[0]} of the pair is not a step of both curves; "
            f"{run['model'][0]} {run['run'][0]} has {shown}."
        )
    return runs.select(*SERIES, before=before, after=after, choice=pl.lit(PAIR))


def _chosen(curves: pl.DataFrame, max_loss: float) -> pl.DataFrame:
    """The step of the best performance, and that of the smallest gap within a loss, by run.

    The loss is in percentage points; `searched` counts the checkpoints within it. Of equal gaps it
    is that of the better performance, then the earlier one.
    """
    lost = pl.col("performance").max().over(SERIES) - pl.col("performance")
    # Differences of shares such as 0.50 − 0.48 are off by a rounding error.
    rows = curves.with_columns(is_best=lost <= 1e-12, within=lost <= max_loss / 100 + 1e-12)
    steps = rows.sort("gap", pl.col("performance").neg(), "step").group_by(SERIES).agg(
        before=pl.col("step").filter("is_best").first(),
        after=pl.col("step").filter("within").first(),
        searched=pl.col("within").sum().cast(pl.Int64),
    ).sort(SERIES)  # fmt: skip
    return steps.with_columns(choice=pl.lit(SMALLEST), max_accuracy_loss=pl.lit(float(max_loss)))
