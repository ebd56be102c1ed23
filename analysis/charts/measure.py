"""An axis of values: its title, its scale, and ticks that say which scale it is."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import altair as alt
import polars as pl

TICKS = 6
"""Most ticks of a logarithmic axis."""
NICE = 5
"""Ticks for which a linear axis ends at round numbers."""
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Measure(NamedTuple):
    """One axis of a plot."""

    column: str
    title: str
    """Lines of an axis, if there are several."""
    band: tuple[str, str] | None = ("low", "high")
    """Columns with the ends of its interval; None for none. NaN and null have none."""
    scale: Literal["linear", "zero", "share", "percent", "log"] = "linear"
    """`zero` includes zero. `share` ends at 1 unless all values are less than half."""
    level: float | tuple[float, ...] | None = None
    """Values that are always on the axis, such as that of a reference line."""

    def about(self, table: pl.DataFrame, *, padding: float = 0) -> dict[str, Any]:
        """Title, scale and axis of a channel for the values of a table.

        `padding` are points between the outermost values and the ends of a linear axis.
        """
        values = self._values(table)
        scale, axis = alt.Scale(zero=self.scale == "zero", nice=NICE), alt.Axis(tickCount=NICE)
        if padding and self.scale == "linear":
            scale.padding = padding
        if self.scale == "percent":
            scale = alt.Scale(domain=[0, 100])
        elif self.scale == "share":
            most = max(values, default=0)
            scale = alt.Scale(domain=[0, 1 if 0.5 <= most <= 1 or most <= 0 else most], nice=NICE)
        elif self.scale == "log" and (positive := [value for value in values if value > 0]):
            low, high = log_range(min(positive), max(positive))
            scale = alt.Scale(type="log", domain=[low, high], nice=False)
            axis = log_axis(log_ticks(low, high))
        title = self.title.splitlines() if "\n" in self.title else self.title
        return {"title": title, "scale": scale, "axis": axis}

    def _values(self, table: pl.DataFrame) -> list[float]:
        columns = (self.column, *(self.band or ()))
        known = (table[name].drop_nulls().cast(pl.Float64) for name in columns)
        values = chain.from_iterable(column.to_list() for column in known)
        levels = self.level if isinstance(self.level, tuple) else (self.level,)
        fixed = (level for level in levels if level is not None)
        return [*fixed, *(value for value in values if math.isfinite(value))]


def log_range(low: float, high: float) -> tuple[float, float]:
    """The ends of a logarithmic axis: the next power of ten if it is near, or else a bit beyond.

    >>> log_range(2, 80), log_range(0.4, 2.5), log_range(1, 1)
    ((1.0, 100.0), (0.36, 2.8), (0.5, 2))
    """
    if low == high:
        return low / 2, high * 2
    under, over = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
    return (
        under if low <= 3 * under else float(f"{low / 1.1:.2g}"),
        over if over <= 3 * high else float(f"{high * 1.1:.2g}"),
    )


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten from `low` to `high`; of fewer than three, 2 and 5 times those, or even steps.

    >>> log_ticks(1, 1000), log_ticks(2, 30), log_ticks(4.5, 10)
    ([1.0, 10.0, 100.0, 1000.0], [2.0, 5.0, 10.0, 20.0], [6.0, 8.0, 10.0])
    >>> log_ticks(1e-12, 1)
    [1e-12, 1e-09, 1e-06, 0.001, 1.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    within = [e for e in range(first, last + 1) if low <= float(f"1e{e}") <= high]
    if len(within) > 2:
        apart = -(-len(within) // TICKS)
        return [float(f"1e{e}") for e in reversed(within[::-1][::apart])]
    finer = [float(f"{m}e{e}") for e in range(first, last + 1) for m in (1, 2, 5)]
    finer = [tick for tick in finer if low <= tick <= high]
    if len(finer) > 2:
        return finer
    return even_ticks(low, high)  # less than a factor of five


def even_ticks(low: float, high: float) -> list[float]:
    """Two to six multiples of 1, 2 or 5 times a power of ten from `low` to `high`.

    >>> even_ticks(4.5, 10), even_ticks(0.21, 0.95)
    ([6.0, 8.0, 10.0], [0.4, 0.6, 0.8])
    """
    unit = 10.0 ** (math.floor(math.log10(high - low)) - 1)
    sizes = (unit * part for part in (1, 2, 5, 10, 20, 50, 100))
    size = next(size for size in sizes if high - low <= 5 * size)
    counts = range(math.ceil(low / size), math.floor(high / size) + 1)
    return [float(f"{count * size:.12g}") for count in counts]


def log_axis(ticks: Sequence[float]) -> alt.Axis:
    """An axis with these ticks, labelled as 1, 10, 100, 1k, and below 0.001 as powers of ten."""
    small = min(ticks) < 1e-3
    texts = [power(tick) if small and tick < 1 else number(tick) for tick in ticks]
    label = f"{texts}[indexof({[*ticks]}, datum.value)]"
    return alt.Axis(values=[*ticks], labelExpr=label)


def number(value: float) -> str:
    """
    >>> number(0.01), number(200), number(1e5), number(2e6)
    ('0.01', '200', '100k', '2M')
    """
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def power(value: float) -> str:
    """
    >>> power(1e-12), power(2e-4)
    ('10⁻¹²', '2·10⁻⁴')
    """
    digits, exponent = f"{value:.1e}".split("e")
    factor = "" if float(digits) == 1 else f"{float(digits):g}·"
    return f"{factor}10{str(int(exponent)).translate(SUPERSCRIPTS)}"
