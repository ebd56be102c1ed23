"""Marks over training steps: rows of tests beneath a figure, and the change points of a gap."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from logitbank.analysis.drawing.paper import MUTED
from logitbank.analysis.drawing.places import StepPlaces
from logitbank.analysis.drawing.sheet import Axis, Panel, Sheet, Trace, floats, told
from logitbank.analysis.stats.significance import SIGNIFICANCE
from logitbank.wording import signed, step_name

ROW = 26
"""Pixels of a row of marks."""


def mark_panel(names: Sequence[str]) -> Panel:
    """Rows of marks, the first at the top, with their names at the left."""
    return Panel(Axis(names=names, turned=True, grid=False), ROW * len(names))


def add_marks(
    sheet: Sheet,
    places: StepPlaces,
    rows: pl.DataFrame,
    *,
    at: int,
    series: str,
    name: str,
    group: str = "",
    colour: str = MUTED,
) -> None:
    """A row of marks in the lower panel, those of several series a little beside each other."""
    count, index = len(sheet.series), sheet.series.index(series)
    aside = 0.26 * (index - (count - 1) / 2) if count <= 3 else 0.0
    columns = {
        **places.columns(rows["step"].to_list()),
        "value": np.full(len(rows), at + aside),
        "filled": np.array([float(p is not None and p < SIGNIFICANCE) for p in rows["p"]]),
        "when": [step_name(step) for step in rows["step"]],
        "told": [f"p = {told(p, 3)}" for p in rows["p"]],
    }
    sheet.traces.append(
        Trace(
            shape="points", role="mark", series=series, group=group, columns=columns, panel=1,
            head=sheet.head(name, series), told=["when", "told"], colour=colour,
            size=8 if len(rows) <= 40 else 5,
        )
    )  # fmt: skip


def add_level(
    sheet: Sheet, places: StepPlaces, row: pl.DataFrame, *, series: str, name: str
) -> None:
    """A grey band, or a line, over all steps: the interval and the value of one checkpoint."""
    value, low, high = (float(row[column][0]) for column in ("value", "low", "high"))
    if not math.isfinite(low + high):
        low = high = value
    columns = {
        **places.columns([sheet.steps[0], sheet.steps[-1]]),
        **{of: floats([at, at]) for of, at in (("value", value), ("low", low), ("high", high))},
        "told": [f"{name}: {told(value)}"] * 2,
    }
    sheet.traces.append(
        Trace(
            shape="curve", role="mark", series=series, columns=columns, head=sheet.head(series),
            told=["told"], band=True, width=1, dash="dotted",
            note=name if len(sheet.series) == 1 else "", note_left=True,
        )
    )  # fmt: skip


def add_change_point(
    sheet: Sheet,
    places: StepPlaces,
    part: pl.DataFrame,
    change: Mapping[str, Any],
    *,
    series: str,
    colour: str,
) -> None:
    """A dashed line at the step from which a gap has another level, and between which it may.

    Its text says what changed: the means of both levels.
    """
    ends = pl.concat([part["low"], part["high"], part["value"]]).drop_nulls().drop_nans()
    levels = " → ".join(signed(change[f"mean_{side}"], ".2f") for side in ("before", "after"))
    step = change["step"]
    where, mean = f"step {step:,}:", f"mean {levels}"
    text = f"{where} {mean}"
    first, last = change["earliest"], change["latest"]
    among = "" if first == last else f" (95 %: {first:,} to {last:,})"
    reach = floats([min(0.0, *ends), max(0.0, *ends)])
    columns = {**places.columns([step, step]), "value": reach, "told": [text + among] * 2}
    several = len(sheet.series) > 1
    if among:
        between = {
            **places.columns([first, last]),
            **{name: np.full(2, reach[at]) for name, at in (("value", 0), ("low", 0), ("high", 1))},
        }
        sheet.traces.append(
            Trace(
                shape="curve", role="mark", series=series, columns=between, band=True, alpha=0,
                colour=colour if several else MUTED,
            )
        )  # fmt: skip
    sheet.traces.append(
        Trace(
            shape="curve", role="mark", series=series, columns=columns, head=sheet.head(series),
            told=["told"], colour=colour if several else MUTED, width=1.2, dash="dashed",
            # In one line it is 175 px wide: more than the half of a telephone's plot that it may
            # have. The two lines of five series and more reach to the bottom of a plot.
            note=f"{where}\n{mean}", note_brief=len(sheet.series) > 4,
            note_left=places.late(step), note_row=sheet.series.index(series) % 8,
        )
    )  # fmt: skip
