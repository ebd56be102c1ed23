"""The charts of lm-evaluation-harness: learning curves, one for each task and group."""

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, sample_size, titled
from logitbank.analysis.charts.curves import HEIGHT, curves, horizontal, interval_caption
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.families.lm_eval.findings import by_change
from logitbank.analysis.families.lm_eval.metric import LmEval
from logitbank.analysis.results.series import figure_name

MOST = 12
"""Charts of tasks; all values are in the table."""


def charts(result: LmEval) -> dict[str, Chart]:
    """A chart of the main metric of each task, in the order of findings; at most `MOST`."""
    table = result.lm_eval.filter("is_main").drop_nulls("value")
    tasks = by_change(table)
    several = len(tasks) > 1
    return {
        figure_name("lm_eval", task, several): _chart(table.filter(task=task), len(tasks))
        for task in tasks[:MOST]
    }


def _chart(table: pl.DataFrame, tasks: int) -> Chart:
    row = table.row(-1, named=True)
    axis = StepAxis(table["step"].to_list())
    chance = row["chance"]
    shares = table["value"].is_between(0, 1).all() and row["metric"].startswith("acc")
    measure = Measure(
        "value", row["metric"], ("low", "high"), "share" if shares else "linear", chance
    )
    plot: Chart = curves(table, axis, measure, tooltip={"Documents": "documents"})
    caption = f"{row['metric']} of {row['task']} (filter {row['filter']}) over training."
    if bands := interval_caption(table, "95% confidence intervals over documents"):
        caption += f" {bands}"
    if chance is not None:
        plot = alt.layer(plot, horizontal(chance)).properties(height=HEIGHT)
        caption += f" Dashed: chance ({chance:.1%})."
    if tasks > MOST:
        caption += f" {MOST} of {tasks} tasks have a chart, those with the largest changes."
    caption += f" {sample_size(table['documents'], 'document')}."
    return titled(plot, row["task"], caption, axis=axis)
