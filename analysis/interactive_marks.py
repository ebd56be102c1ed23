"""Marks over training steps: rows of tests beneath a figure, and the onset of a gap."""

from collections.abc import Sequence

import polars as pl

from logitbank.analysis.figure_axes import MUTED
from logitbank.analysis.interactive_parts import Sheet, plain, rounded, told, when
from logitbank.analysis.interactive_steps import Panel, StepPlaces, axis_of
from logitbank.analysis.stats import SIGNIFICANCE

ROW = 26
"""Pixels of a row of marks."""


def mark_panel(names: Sequence[str]) -> Panel:
    """Rows of marks, the first at the top, with their names at the left."""
    options = {
        "showgrid": False,
        "fixedrange": True,
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": [plain(name) for name in names],
        "tickfont": {"size": 11},
        "range": [len(names) - 0.4, -0.6],
    }
    return Panel("", ROW * len(names), options)


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
    count, own = len(sheet.series), sheet.series.index(series)
    aside = 0.26 * (own - (count - 1) / 2) if count <= 3 else 0.0
    hit = [p is not None and p < SIGNIFICANCE for p in rows["p"]]
    marks = {
        "type": "scatter",
        "mode": "markers",
        "name": plain(name),
        "showlegend": False,
        "legendgroup": f"{series}|{name}",
        "yaxis": axis_of(1),
        "x": rounded(places.place(step) for step in rows["step"]),
        "y": rounded([at + aside] * len(rows)),
        "customdata": [
            [step, told(p, 3), when(step)] for step, p in rows.select("step", "p").iter_rows()
        ],
        "marker": {
            "size": 8 if len(rows) <= 40 else 5,
            "color": colour,
            "symbol": ["circle" if filled else "circle-open" for filled in hit],
        },
        "hovertemplate": f"{sheet.head(series, name)}<br>%{{customdata[2]}}"
        "<br>p = %{customdata[1]}<extra></extra>",
    }
    sheet.add(marks, series=series, group=group, role="mark", test=name)


def add_onset(
    sheet: Sheet,
    places: StepPlaces,
    part: pl.DataFrame,
    *,
    series: str,
    step: int,
    colour: str,
) -> None:
    """A dashed line at the step from which an interval excludes 0, which says so."""
    ends = pl.concat([part["low"], part["high"], part["value"]]).drop_nulls().drop_nans()
    x, left = places.place(step), places.place(step) < 0.5 * places.place(places.axis.last)
    text = f"excludes 0 from step {step:,}"
    line = {
        "type": "scatter",
        "mode": "lines+text",
        "name": text,
        "showlegend": False,
        "legendgroup": f"{series}|",
        "x": rounded([x, x]),
        "y": rounded([min(0.0, *ends), max(0.0, *ends)]),
        "text": ["", text],
        "textposition": "middle right" if left else "middle left",
        "textfont": {"size": 11},
        "customdata": [[step], [step]],
        "line": {"color": colour if len(sheet.series) > 1 else MUTED, "width": 1.2, "dash": "dash"},
        "hovertemplate": f"{sheet.head(series)}<br>the interval {text}<extra></extra>",
    }
    sheet.add(line, series=series, role="mark")
