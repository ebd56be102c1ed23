"""The axis of training steps, linear or logarithmic, with the release at its right."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Literal

import altair as alt
import polars as pl

from logitbank.wording import step_name

Step = int | None
Scale = Literal["linear", "symlog"]
NEAR = 0.12
"""The share of an axis beside the release in which its label leaves no room for another."""


def step_scale(steps: Sequence[Step]) -> Scale:
    """The scale on which these steps are distinguishable, from their spacing.

    Up to two decades of steps are on a linear axis, and so are evenly spaced ones. So are those
    whose even spacing begins later, if it has at least half of them within one decade. All others
    are on a logarithmic axis, and so are steps more than half of which lie in the first percent.

    >>> step_scale([0, 1, 2, 4, 8, 64]), step_scale([0, 1, 8, 64, 512])
    ('linear', 'symlog')
    >>> step_scale([0, 1, 8, 64, *range(100, 800, 50)])
    'linear'
    >>> step_scale([0, *(2**k for k in range(10)), *range(1000, 144_000, 20_000)])
    'symlog'
    """
    known = sorted({step for step in steps if step is not None})
    if known and 2 * sum(100 * step < known[-1] for step in known) > len(known) > 2:
        return "symlog"
    if known and known[-1] <= 100 * next((step for step in known if step > 0), 1):
        return "linear"
    widths = [after - before for before, after in pairwise(known)]
    if len(widths) < 3:
        return "symlog"
    unit = median(widths[-3:])
    even = 0
    for at, width in enumerate(reversed(widths)):
        short_end = at == 0 and width < unit  # a run ends where its tokens do
        if not (short_end or 0.8 * unit <= width <= 1.25 * unit):
            break
        even += 1
    within_a_decade = known[-1] <= 10 * known[-1 - even]
    return (
        "linear"
        if even == len(widths) or (2 * even >= len(widths) and within_a_decade)
        else "symlog"
    )


def step_names(steps: pl.Series) -> pl.Series:
    """Steps as tooltips name them.

    >>> step_names(pl.Series([1000, None])).to_list()
    ['step 1,000', 'release']
    """
    return pl.Series([step_name(step) for step in steps], dtype=pl.String)


class StepAxis:
    """Positions of steps, and the Altair channel of the axis.

    `of(table)` adds the columns `at` (position) and `checkpoint` (text) to a table with `step`.
    """

    def __init__(self, steps: Sequence[Step], scale: Scale | None = None) -> None:
        known = sorted({step for step in steps if step is not None})
        self.scale: Scale = scale or step_scale(steps)
        self.has_steps = bool(known)
        self.last = known[-1] if known else 0
        self.start = known[0] if known else 0
        self.first = next((step for step in known if step > 0), 1)
        self.release = None in steps
        self.release_at = self.release_position(self.scale)

    def release_position(self, scale: Scale) -> float:
        """Where the release stands on a scale: right of the last step."""
        return max(1.0, round((1.12 if scale == "linear" else 2.5) * self.last))

    def of(self, table: pl.DataFrame) -> pl.DataFrame:
        return table.with_columns(
            at=pl.col("step").cast(pl.Float64).fill_null(self.release_at),
            checkpoint=step_names(table["step"]),
        )

    def ticks(self, scale: Scale) -> list[float]:
        """Zero, decades and the release; of a linear axis, round numbers."""
        if scale == "linear":
            unit = 10 ** math.floor(math.log10(max(self.last, 1)))
            step = next(
                s for s in (unit / 5, unit / 2, unit, 2 * unit) if s >= 1 and self.last / s <= 6
            )
            numbers = [step * i for i in range(int(self.last / step) + 1)]
            numbers = [number for number in numbers if number >= self.start - 0.02 * self.last]
        else:
            least = math.floor(math.log10(self.first))
            numbers = [
                0.0,
                *(10.0**e for e in range(least, math.floor(math.log10(max(self.last, 1))) + 1)),
            ]
            numbers = [number for number in numbers if number == 0 or number >= self.first / 1.5]
            if self.last > 2 * numbers[-1]:  # a number near the right end, too
                numbers.append(float(self.last))
        if not self.release:
            return numbers
        at = float(self.release_position(scale))
        start, end = (self._place(each, scale) for each in (self.start, at))
        near = NEAR * (end - start)
        apart = [n for n in numbers if end - self._place(n, scale) >= near]
        return [*apart, at] if self.has_steps else [at]

    def _place(self, step: float, scale: Scale) -> float:
        """A distance along the axis, up to a factor."""
        return step if scale == "linear" else math.log1p(step / self.first)

    def x(self, *, field: str = "at") -> alt.X:
        label = "format(datum.value, '~s')"
        if self.release:
            label = f"datum.value == {self.release_at} ? 'release' : {label}"
        scale = alt.Scale(type=self.scale, nice=False, zero=False, padding=6)
        if self.scale == "symlog":
            scale = alt.Scale(type="symlog", constant=self.first, nice=False, zero=False, padding=6)
        axis = alt.Axis(values=self.ticks(self.scale), labelExpr=label)
        return alt.X(f"{field}:Q", title="Training step", scale=scale, axis=axis)

    def meta(self) -> dict[str, Any]:
        """Data for a page's switch of the axis: ticks and the release's place on both scales."""
        scales: tuple[Scale, Scale] = ("linear", "symlog")
        return {
            "steps": {
                "scale": self.scale,
                "constant": self.first,
                "ticks": {scale: self.ticks(scale) for scale in scales},
                "release": {scale: self.release_position(scale) for scale in scales},
            }
        }
