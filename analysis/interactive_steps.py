"""Curves over training steps: places of steps, panels above each other, lines and bands."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from logitbank.analysis.figure_axes import ZERO_DECADES, StepAxis, short
from logitbank.analysis.interactive_parts import (
    AXIS,
    Sheet,
    Step,
    Trace,
    in_order,
    interval,
    plain,
    rounded,
    told,
)

MANY = 25
"""Points beyond which a line has no markers."""
GAP = 26
"""Pixels between panels."""


class StepPlaces:
    """Places of training steps in decades: 0 at the left, the release at the right.

    The first step after 0 is at 0.45, one of ten times as many at 1.45.

    >>> places = StepPlaces([0, 10, 1000, None])
    >>> [round(places.place(step), 3) for step in (0, 10, 1000, None)]
    [0.0, 0.45, 2.45, 2.744]
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.axis = StepAxis(steps)

    def place(self, step: Step) -> float:
        """Where a step is; those between 0 and the first one are in proportion."""
        return self._of(self.axis.release_at if step is None else float(step))

    def _of(self, number: float) -> float:
        ratio = number / self.axis.first
        return ZERO_DECADES * ratio if ratio < 1 else math.log10(ratio) + ZERO_DECADES

    def ticks(self) -> list[tuple[float, str]]:
        """Places and texts: 0, decades or parts of them, and the release."""
        numbers = [0.0] if self.axis.zero else []
        if self.axis.last > 1 or not self.axis.release:
            numbers += self._round_numbers()
        ticks = [(self._of(number), short(number)) for number in numbers]
        return [*ticks, (self.place(None), "release")] if self.axis.release else ticks

    def _round_numbers(self) -> list[float]:
        first, last = float(self.axis.first), float(self.axis.last)
        decades = range(math.floor(math.log10(first)), math.ceil(math.log10(last)) + 1)
        for factors in ((1,), (1, 3), (1, 2, 5)):
            numbers = [float(f * 10**d) for d in decades for f in factors]
            inside = [number for number in numbers if first <= number <= last]
            if len(inside) >= 3:
                return inside
        return sorted({first, last})

    def about(self) -> dict[str, Any]:
        """What a page needs to draw these steps on another axis."""
        return {
            "ticks": [[round(place, 5), text] for place, text in self.ticks()],
            "first": self.axis.first,
            "last": self.axis.last,
            "release": self.axis.release,
        }

    def layout(self) -> dict[str, Any]:
        """The horizontal axis, in Plotly's terms."""
        ticks = self.ticks()
        left = 0.0 if self.axis.zero or not ticks else ZERO_DECADES
        right = self.place(None if self.axis.release else self.axis.last)
        margin = max(0.03 * (right - left), 0.05)
        return {
            **AXIS,
            "showgrid": False,
            "title": {"text": "Training step"},
            "tickmode": "array",
            "tickvals": [round(place, 5) for place, _ in ticks],
            "ticktext": [text for _, text in ticks],
            "range": [round(left - margin, 5), round(right + margin, 5)],
        }


class Panel(NamedTuple):
    """One of the vertical axes that share the steps."""

    title: str
    height: int = 300
    options: Mapping[str, Any] = {}


def training_sheet(
    title: str,
    caption: str,
    *,
    steps: Sequence[Step],
    series: Sequence[str],
    panels: Sequence[Panel],
) -> tuple[Sheet, StepPlaces]:
    """A sheet whose panels are above each other, the first at the top, over the same steps."""
    places = StepPlaces(steps)
    whole = sum(panel.height for panel in panels) + GAP * (len(panels) - 1)
    layout: dict[str, Any] = {}
    upper = float(whole)
    for at, panel in enumerate(panels, start=1):
        domain = [max(0.0, (upper - panel.height) / whole), upper / whole]
        upper -= panel.height + GAP
        options = {"title": {"text": plain(panel.title)}, "domain": rounded(domain)}
        layout[f"yaxis{at if at > 1 else ''}"] = {**AXIS, **options, **panel.options}
    layout["xaxis"] = {**places.layout(), "anchor": axis_of(len(panels) - 1)}
    sheet = Sheet(
        title,
        caption,
        "training",
        in_order(steps),
        series,
        height=whole + 48,
        layout=layout,
        about={"axis": places.about()},
    )
    return sheet, places


def axis_of(panel: int) -> str:
    """The name of a panel's axis, in Plotly's terms."""
    return f"y{panel + 1 if panel else ''}"


class Curve(NamedTuple):
    """One line with its band."""

    series: str
    group: str
    colour: str
    rows: pl.DataFrame
    """Columns step, value, low, high, and those of `tests`."""
    label: str
    """What the value is."""
    within: str = "95 %"
    """What low and high are."""
    tests: Mapping[str, str] = {}
    """Columns of p values, and what they are called."""
    panel: int = 0
    in_legend: bool = True
    name: str | None = None
    dash: str | None = None


def add_curve(sheet: Sheet, places: StepPlaces, curve: Curve) -> None:
    """Band and line over the steps; a release stands alone beside them."""
    trained = curve.rows.filter(pl.col("step").is_not_null()).sort("step")
    released = curve.rows.filter(pl.col("step").is_null())
    whole = {"series": curve.series, "group": curve.group}
    if len(trained):
        if band := _band(curve, trained, places):
            sheet.add(band | _where(curve), role="band", **whole)
        sheet.add(_line(sheet, curve, trained, places), role="line", **whole)
    if len(released):
        diamond = _release(sheet, curve, released, places)
        sheet.add(diamond | {"showlegend": curve.in_legend and not len(trained)},
                  role="point", **whole)  # fmt: skip


def _where(curve: Curve) -> Trace:
    group = f"{curve.series}|{curve.group}"
    return {"type": "scatter", "legendgroup": group, "yaxis": axis_of(curve.panel)}


def _band(curve: Curve, rows: pl.DataFrame, places: StepPlaces) -> Trace | None:
    """A closed outline: along the lower ends, and back along the upper ones."""
    ends = rows.filter(
        pl.col("low").is_finite() & pl.col("high").is_finite() & pl.col("value").is_not_nan()
    )
    if (ends["low"] == ends["high"]).all():
        return None
    steps = [*ends["step"], *reversed(ends["step"].to_list())]
    return {
        "mode": "lines",
        "x": rounded(places.place(step) for step in steps),
        "y": rounded([*ends["low"], *reversed(ends["high"].to_list())]),
        "customdata": [[step] for step in steps],
        "fill": "toself",
        "fillcolor": faded(curve.colour, 0.18),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _line(sheet: Sheet, curve: Curve, rows: pl.DataFrame, places: StepPlaces) -> Trace:
    dash = curve.dash or sheet.dash(curve.series)
    return {
        **_where(curve),
        **_points(sheet, curve, rows, places),
        "mode": "lines+markers" if len(rows) <= MANY else "lines",
        "marker": {"size": 5, "color": curve.colour},
        "line": {"color": curve.colour, "width": 2, "dash": dash},
        "showlegend": curve.in_legend,
    }


def _release(sheet: Sheet, curve: Curve, rows: pl.DataFrame, places: StepPlaces) -> Trace:
    above = rounded((rows["high"] - rows["value"]).to_list())
    below = rounded((rows["value"] - rows["low"]).to_list())
    spread = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    drawn = {} if None in (*above, *below) else {"error_y": {**spread, "color": curve.colour}}
    return {
        **_where(curve),
        **_points(sheet, curve, rows, places),
        **drawn,
        "mode": "markers",
        "marker": {"symbol": "diamond", "size": 9, "color": curve.colour},
    }


def _points(sheet: Sheet, curve: Curve, rows: pl.DataFrame, places: StepPlaces) -> Trace:
    """Places, values, and what is told of each on hovering; the real step comes first."""
    columns: list[list[Any]] = [rows["step"].to_list()]
    released = columns[0][:1] == [None]
    lines = [
        sheet.head(curve.series, curve.group),
        "release" if released else "step %{customdata[0]:,}",
        f"{plain(curve.label)}: %{{y:,.4~r}}",
    ]
    ends = list(zip(rows["low"], rows["high"], strict=True))
    if any(interval(*pair) != "–" and pair[0] != pair[1] for pair in ends):
        lines.append(f"{curve.within}: %{{customdata[{len(columns)}]}}")
        columns.append([interval(*pair) for pair in ends])
    for column, name in curve.tests.items():
        if rows[column].null_count() < len(rows):
            lines.append(f"{plain(name)}: p = %{{customdata[{len(columns)}]}}")
            columns.append([told(p, 3) for p in rows[column]])
    return {
        "name": curve.name or sheet.name(curve.series, curve.group),
        "x": rounded(places.place(step) for step in columns[0]),
        "y": rounded(rows["value"]),
        "customdata": [list(row) for row in zip(*columns, strict=True)],
        "hovertemplate": "<br>".join(lines) + "<extra></extra>",
    }


def faded(colour: str, alpha: float) -> str:
    """A colour that one sees through.

    >>> faded("#0072b2", 0.2)
    'rgba(0, 114, 178, 0.2)'
    """
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {alpha})"
