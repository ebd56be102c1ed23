"""The charts of minimal pairs: the score over training, and by group at one checkpoint."""

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, sample_size, titled
from logitbank.analysis.charts.curves import (
    SERIES,
    at_checkpoint,
    curves,
    dots,
    drawn_checkpoint,
    horizontal,
    interval_caption,
    with_series,
)
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.families.pairs.findings import score_name
from logitbank.analysis.families.pairs.metric import DIRECTIONS, Pairs
from logitbank.analysis.stats.summary import ALL
from logitbank.wording import step_name

LINES = {"score": "all pairs"} | {f"{name}_score": f"{name} pairs" for name in DIRECTIONS}


def charts(result: Pairs) -> dict[str, Chart]:
    """`pairs` over training, and `groups` if there are any."""
    table = with_series(result.pairs, "score_kind")
    found = {"pairs": _training(table.filter(group=ALL), score_name(result))}
    groups = table.filter(pl.col("group") != ALL)
    if len(groups):
        found["groups"] = _groups(groups, score_name(result))
    return found


def _training(table: pl.DataFrame, measure: str) -> Chart:
    axis = StepAxis(table["step"].to_list())
    lines = [name for name in LINES if name in table.columns]
    keys = ["model", "run", "step", SERIES, "low", "high", "pairs"]
    long = table.unpivot(lines, index=keys, variable_name="line", value_name="value").with_columns(
        pl.col("line").replace_strict(LINES),
        pl.when(pl.col("line") == "score").then(pl.col("low", "high")),
    )
    group = "line" if len(lines) > 1 else None
    share = Measure("value", f"{measure} (%)", scale="percent")
    chart = curves(long, axis, share, group=group, tooltip={"Pairs": "pairs"})
    caption = (
        f"{measure}: share of pairs whose first sentence is the more probable one. Dashed: chance "
        "(50%). "
        f"{interval_caption(table)} "
        f"{sample_size(table['pairs'], 'pair')}."
    )
    return titled(alt.layer(chart, horizontal(50)), measure, caption, axis=axis)


def _groups(table: pl.DataFrame, measure: str) -> Chart:
    share = Measure("score", f"{measure} (%)", scale="percent")
    tooltip = {"Group": "group", "Model": SERIES, "Score": "score", "Pairs": "pairs"}
    chart = at_checkpoint(
        table, lambda rows: dots(rows, table, share, "group", tooltip=tooltip, reference=50)
    )
    caption = (
        f"{measure} by group at {step_name(drawn_checkpoint(table))}: share of pairs whose first "
        "sentence is the more probable one. Dashed: chance (50%). "
        f"{interval_caption(table, of_dots=True)} "
        f"{sample_size(table['pairs'], 'pair')} in a group."
    )
    return titled(chart, f"{measure} by group", caption)
