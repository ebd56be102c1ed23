"""Curves over training steps: places of steps, panels above each other, lines and bands."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.drawing.paper import short
from logitbank.analysis.drawing.sheet import (
    Axis,
    Columns,
    Panel,
    Sheet,
    Step,
    Trace,
    floats,
    in_order,
    interval,
    told,
    when,
)

MANY = 25
"""Points beyond which a line shows no markers."""
ZERO_DECADES = 0.45
"""Width of the stretch from step 0 to the first step after it, in decades."""
BESIDE = 1.06
"""Place of the release on a linear axis, of the last step."""


class StepAxis:
    """What an axis of training steps has to place: step 0 left of the others, the release right."""

    def __init__(self, steps: Sequence[int | None]) -> None:
        known = [step for step in steps if step is not None]
        positive = [step for step in known if step > 0]
        self.zero = 0 in known
        self.release = None in steps
        self.first = min(positive, default=1)
        self.last = max(positive, default=1)
        decades = math.log10(self.last / self.first) + (ZERO_DECADES if self.zero else 0)
        gap = max(0.12 * decades, 0.1)
        self.release_at = self.last * 10**gap if known else 1.0


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

    def columns(self, steps: Sequence[Step]) -> Columns:
        """Steps as numbers (NaN: the release), and their places on either axis."""
        numbers = np.array([math.nan if step is None else step for step in steps], dtype=float)
        log = np.array([round(self.place(step), 5) for step in steps], dtype=np.float32)
        linear = np.where(np.isnan(numbers), BESIDE * self.axis.last, numbers)
        return {"step": numbers, "x": log, "log": log, "linear": linear}

    def across(self) -> Axis:
        """The horizontal axis, in decades."""
        ticks = self.ticks()
        left = 0.0 if self.axis.zero or not ticks else ZERO_DECADES
        right = self.place(None if self.axis.release else self.axis.last)
        margin = max(0.03 * (right - left), 0.05)
        return Axis(
            "Training step",
            ends=(round(left - margin, 5), round(right + margin, 5)),
            ticks=[(round(place, 5), text) for place, text in ticks],
            grid=False,
        )


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
    sheet = Sheet(
        title,
        caption,
        "training",
        in_order(steps),
        series,
        across=places.across(),
        panels=panels,
        about={"axis": places.about()},
    )
    return sheet, places


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
    for rows, line in ((trained, True), (released, False)):
        if rows.is_empty():
            continue
        columns, lines = _points(curve, rows, places)
        ends = columns["high"] - columns["low"]
        known = bool((ends > 0).any())
        named = curve.in_legend and (line or trained.is_empty())
        shown: dict[str, Any] = (
            {"shape": "curve", "role": "line", "size": 5 if len(rows) <= MANY else 0, "band": known}
            if line
            else {"shape": "points", "role": "point", "size": 10, "symbol": "diamond",
                  "reach": ["y"] if known else []}
        )  # fmt: skip
        sheet.traces.append(
            Trace(
                series=curve.series,
                group=curve.group,
                columns=columns,
                head=sheet.head(curve.group, curve.series),
                told=lines,
                panel=curve.panel,
                name=(curve.name or sheet.name(curve.series, curve.group)) if named else "",
                colour=curve.colour,
                dash=curve.dash or sheet.dash(curve.series),
                **shown,
            )
        )


def _points(curve: Curve, rows: pl.DataFrame, places: StepPlaces) -> tuple[Columns, list[str]]:
    """Places, values, and what is told of each on hovering."""
    steps, ends = rows["step"].to_list(), list(zip(rows["low"], rows["high"], strict=True))
    columns = {
        **places.columns(steps),
        **{name: floats(rows[name]) for name in ("value", "low", "high")},
        "when": [when(step) for step in steps],
        "told": [f"{curve.label}: {told(value)}" for value in rows["value"]],
    }
    lines = ["when", "told"]
    if any(interval(*pair) != "–" and pair[0] != pair[1] for pair in ends):
        columns["ends"] = [f"{curve.within}: {interval(*pair)}" for pair in ends]
        lines.append("ends")
    for at, (column, name) in enumerate(curve.tests.items()):
        if rows[column].null_count() < len(rows):
            columns[f"p{at}"] = [f"{name}: p = {told(p, 3)}" for p in rows[column]]
            lines.append(f"p{at}")
    return columns, lines
