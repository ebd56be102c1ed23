"""What every figure is made of: its sheet of traces, its text, its colours.

In words of our own: `bokeh` draws them on pages and `matplotlib` on paper.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from logitbank.analysis.drawing.paper import MUTED, PALETTE, short, shortened
from logitbank.store.steps import Step, in_order

if TYPE_CHECKING:
    from bokeh.models import LayoutDOM

Kind = Literal["training", "checkpoint", "fixed"]
Role = Literal["line", "band", "mark", "point", "bar", "cell"]
Columns = dict[str, Any]
"""Arrays and lists of one length."""

DASHES = ("solid", "dashed", "dotted", "dashdot", "dotdash")
VISIBLE_SERIES = 3
"""Curves of more models or runs than these are not shown at once."""
_TEX = re.compile(r"\$(?=\$)|\\(?=[()\[\]])")


def plain(text: object) -> str:
    """Text in one line that is shown as it is: `$$…$$`, `\\(…\\)` and `\\[…\\]` are no formulas.

    A zero-width space breaks them.

    >>> plain("$$a$$") == "$\\u200b$a$\\u200b$"
    True
    """
    return _TEX.sub(lambda match: match[0] + "\u200b", " ".join(str(text).splitlines()))


def floats(values: Iterable[float | None]) -> "np.ndarray":
    """Numbers to 6 significant digits, and NaN for what has no place in a figure.

    >>> floats([1 / 3, 143_000.0, None]).tolist()
    [0.333333, 143000.0, nan]
    """
    known = (math.nan if value is None else value for value in values)
    return np.array([float(f"{v:.6g}") if math.isfinite(v) else math.nan for v in known])


def told(value: float | None, digits: int = 4) -> str:
    """A number for people to read, to significant digits.

    >>> told(0.123456), told(12345.6), told(float("nan"))
    ('0.1235', '12,350', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    near = float(f"{value:.{digits}g}")
    return f"{near:,.0f}" if 1000 <= abs(near) < 1e15 else f"{near:.{digits}g}"


def interval(low: float | None, high: float | None) -> str:
    """Both ends, or a dash where there is none."""
    return "–" if told(low) == "–" or told(high) == "–" else f"{told(low)} to {told(high)}"


class Names:
    """Calls series by their model, and by whatever else differs within the result."""

    def __init__(self, tables: Iterable[pl.DataFrame]) -> None:
        self._seen: dict[str, set[object]] = {}
        for table in tables:
            for key in table.columns:
                if key in _SAID:
                    self._seen.setdefault(key, set()).update(table[key].unique().to_list())

    def parts(self, table: pl.DataFrame, keys: Sequence[str]) -> list[tuple[str, pl.DataFrame]]:
        """The series of a table, which the columns `keys` tell apart, and their names."""
        parts = table.partition_by(list(keys), maintain_order=True)
        return [(self._of(part.row(0, named=True), keys), part) for part in parts]

    def _of(self, head: Mapping[str, Any], keys: Sequence[str]) -> str:
        differing = [key for key in keys if key == "model" or len(self._seen[key]) > 1]
        return " ".join(text for key in differing if (text := said(key, head[key])))


def said(key: str, value: object) -> str:
    """What the name of a series says of a column that tells it from others.

    >>> said("verb", "is"), said("plateau", 2000)
    ('“is”', 'from 2k')
    """
    return _SAID[key](value)


_SAID: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("model", "run", "language", "condition", "score", "category"), str),
    "verb": "“{}”".format,
    "plateau": lambda step: f"from {short(step)}",
    "task": lambda task: str(task).replace("_", " "),
    "score_kind": str,
}


@dataclass(frozen=True)
class Axis:
    """What is along one side of a panel."""

    title: str = ""
    log: bool = False
    from_zero: bool = False
    turned: bool = False
    """The least is at the top."""
    ends: tuple[float, float] | None = None
    names: Sequence[str] = ()
    """In place of the numbers 0, 1, 2 …; with `turned`, the first is at the top."""
    ticks: Sequence[tuple[float, str]] = ()
    grid: bool = True


@dataclass(frozen=True)
class Note:
    """A text at a place of a panel; without `x`, at its left side."""

    text: str
    y: float
    x: float | None = None
    colour: str | None = None
    size: int = 11
    above: bool = False
    """The text stands on its place; otherwise it hangs from it."""


@dataclass(frozen=True)
class Panel:
    """One of the plots of a figure, which are above each other."""

    axis: Axis
    height: int = 300
    across: Axis | None = None
    """Its own horizontal axis; without one, that of the sheet, which it shares with the others."""
    rules: Sequence[tuple[Literal["x", "y"], float]] = ()
    """Dashed lines for reference: across at a height (`y`), or upright (`x`)."""
    notes: Sequence[Note] = ()
    paths: Sequence[Sequence[tuple[float, float]]] = ()
    """Thin lines behind everything."""
    square: bool = False


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What is drawn of one series and group in one panel.

    Columns have `x` and `value`; a band, or a reach along y, also `low` and `high`, one along x
    `x_low` and `x_high`; bars `base` and `width`; cells `value` as the colour and `y`. `colour` and
    `filled` (1 or 0) may differ point by point; `step` has None for the release.
    """

    shape: Literal["curve", "points", "bars", "cells"]
    columns: Columns
    series: str
    role: Role
    group: str = ""
    head: str = ""
    """First line of what is told on hovering."""
    told: Sequence[str] = ()
    """Columns of further lines."""
    panel: int = 0
    name: str = ""
    """What the legend calls it; without one it is not there."""
    colour: str = MUTED
    dash: str = "solid"
    width: float = 2
    size: float = 0
    """Of points, and of those on a curve, in pixels."""
    alpha: float = 1
    symbol: str = "circle"
    band: bool = False
    stepped: bool = False
    reach: Sequence[Literal["x", "y"]] = ()
    """Thin lines from end to end."""
    slides: bool = False
    """Of several checkpoints, one is seen at a time."""
    note: str = ""
    """A text at the last point; paper has it in one line."""
    note_brief: bool = False
    """A page has the first line of the note alone; hovering tells the rest."""
    note_row: int = 0
    """Notes in different rows do not overlap."""
    note_left: bool = False
    """The note ends at its point, and does not begin there."""
    low: float = 0
    """The least colour of cells; the greatest is 1."""
    written: str = ""
    """A column of texts that paper has at the points, where a page tells them on hovering."""

    @property
    def tag(self) -> dict[str, Any]:
        """What a page knows of it."""
        about = {"series": self.series, "group": self.group, "role": self.role}
        return {**about, "steps": in_order(self.columns["step"])} if self.slides else about


@dataclass(frozen=True)
class Interactive:
    """A figure with hovering and zooming."""

    model: "LayoutDOM"
    """Drawn by Bokeh; in a notebook, `bokeh.io.show(figure.model)`."""
    meta: dict[str, Any]
    """title, caption, `kind` (`training`, `checkpoint` or `fixed`), `one_series` (of several
    models, one at a time), `steps` (the release as None), height; of kind `training` also `axis`:
    the `scale` that is drawn, and places and texts of ticks on either."""
    traces: list[dict[str, Any]]
    """Of every renderer, which has the same as its tag: `series`, `group` (what its colour stands
    for), `role`, and `steps` where it has several checkpoints of which one is seen at a time."""


@dataclass
class Sheet:
    """A figure on its way: panels, and traces that say what they belong to."""

    title: str
    caption: str
    kind: Kind
    steps: Sequence[Step] = ()
    series: Sequence[str] = ()
    one_series: bool = False
    legend: bool = False
    """Even of one line."""
    beside: bool = False
    """On paper, panels are beside each other; a page may be as narrow as a telephone."""
    across: Axis = Axis()
    panels: Sequence[Panel] = ()
    about: dict[str, Any] = field(default_factory=dict)
    """More of `Interactive.meta`."""
    bands: str = ""
    """What bands are, and at releases thin lines, where any is drawn."""
    traces: list[Trace] = field(default_factory=list)

    def name(self, series: str, group: str = "") -> str:
        """What the legend calls it."""
        several = len(self.series) > 1
        parts = [group, series] if several else [group or series]
        return ", ".join(shortened(part) for part in parts if part)

    def head(self, *parts: str) -> str:
        """The first line of what is told on hovering."""
        return " · ".join(part for part in parts if part)

    def dash(self, series: str) -> str:
        return DASHES[self.series.index(series) % len(DASHES)]

    def colour(self, series: str) -> str:
        """For figures in which colours tell nothing else apart."""
        return PALETTE[self.series.index(series) % len(PALETTE)]

    @property
    def explained(self) -> str:
        """The caption, and what bands are if there are some."""
        if self.bands and any(trace.band for trace in self.traces):
            return f"{self.caption} Bands: {self.bands}."
        if self.bands and any("y" in trace.reach for trace in self.traces):
            return f"{self.caption} Thin lines: {self.bands}."
        return self.caption

    @property
    def headline(self) -> str:
        """The title, and of what, where that is one thing."""
        return " · ".join([self.title, *(self.series if len(self.series) == 1 else ())])

    def seen(self, trace: Trace) -> bool:
        """Whether a trace is seen at first."""
        most = 1 if self.one_series else VISIBLE_SERIES if self.kind == "training" else math.inf
        return len(self.series) <= most or trace.series in ("", self.series[0])

    def meta(self, *, height: int) -> dict[str, Any]:
        return {
            "title": self.headline,
            "caption": self.explained,
            "kind": self.kind,
            "one_series": self.one_series,
            "steps": list(self.steps),
            "height": height,
            **self.about,
        }


def reached(rows: pl.DataFrame, low: str, high: str, *, along: Literal["x", "y"]) -> Columns:
    """Columns of both ends; nothing where none is known."""
    ends = floats(rows[low]), floats(rows[high])
    if np.isnan(ends[0] + ends[1]).all():
        return {}
    return dict(zip(("x_low", "x_high") if along == "x" else ("low", "high"), ends, strict=True))
