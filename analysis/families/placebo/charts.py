"""The chart of placebos: what both edits change."""

import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import (
    curves,
    interval_caption,
    stacked,
)
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.families.placebo import CHANGED, ODDS
from logitbank.analysis.results.measured import Measured

COLORS = {"target": "#d55e00", "placebo": "#767676"}
PANELS = {
    "changed": Measure("value", CHANGED, scale="share"),
    "odds": Measure("value", ODDS, scale="zero"),
}


def charts(result: Measured) -> dict[str, Chart]:
    """`placebo`: changed answers above the change of log-odds."""
    table = result.measures.with_columns(
        kind=pl.col("measure").str.split(", ").list.first(),
        edit=pl.col("measure").str.split(", ").list.last(),
    ).filter(pl.col("edit").is_in([*COLORS]), pl.col("value").is_not_nan())
    if table.is_empty():
        return {}
    axis = StepAxis(table["step"].to_list())
    panels = [
        curves(table.filter(kind=kind), axis, measure, group="edit", colors=COLORS)
        for kind, measure in PANELS.items()
    ]
    caption = (
        "Share of pairs whose answer an edit changes, and the absolute change of log-odds. "
        f"{interval_caption(table)} "
        f"n = {max(table['clusters'].to_list()):,} pairs."
    )
    return {"placebo": titled(stacked(*panels), "Target and placebo", caption, axis=axis)}
