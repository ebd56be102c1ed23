"""Curves over training steps: panels above each other, lines and bands."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from logitbank.analysis.drawing.places import StepPlaces
from logitbank.analysis.drawing.sheet import Columns, Panel, Sheet, Trace, floats, interval, told
from logitbank.store.steps import Step, in_order
from logitbank.wording import step_name

MANY = 25
"""Points beyond which a line shows no markers."""


def training_sheet(
    title: str,
    caption: str,
    *,
    steps: Sequence[Step],
    series: Sequence[str],
    panels: Sequence[Panel],
    bands: str = "",
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
        bands=bands,
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
        "when": [step_name(step) for step in steps],
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
