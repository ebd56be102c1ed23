"""The chart of stereotype accuracy."""

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import (
    curves,
    horizontal,
    interval_caption,
    stacked,
)
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import PALETTE
from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy

JSD_P = Measure("jsd_p", "JSD-P, scaled to 0–1", scale="share")
NAMES = {"sa": "SA", "sa_gender": "sa_gender"}


def charts(result: StereotypeAccuracy) -> dict[str, Chart]:
    """`stereotype_accuracy`, with all models and runs; with WinoBias also below JSD-P."""
    kind = pl.when(pl.col("type") == 1).then(pl.lit(", Type 1")).otherwise(pl.lit(""))
    table = result.stereotype_accuracy.filter(pl.col("accuracy").is_not_nan()).with_columns(
        measure=pl.col("measure").replace(NAMES) + kind
    )
    if table.is_empty():
        return {}
    jsd_p = result.jsd_p if result.jsd_p is None else result.jsd_p.filter(pl.col("jsd_p") >= 0)
    axis = StepAxis([*table["step"], *(jsd_p["step"] if jsd_p is not None else ())])
    colors = dict(zip(sorted(table["measure"].unique()), PALETTE[2:], strict=False))
    accuracy = Measure("accuracy", "Stereotype accuracy", scale="share", level=0.5)
    tooltip = {"Sentences": "sentences"}
    shares = curves(table, axis, accuracy, group="measure", colors=colors, tooltip=tooltip)
    chart = alt.layer(horizontal(0.5), shares)
    sizes = table.group_by("measure", maintain_order=True).agg(pl.col("sentences").max())
    n = ", ".join(f"{count:,} sentences ({measure})" for measure, count in sizes.rows())
    caption = (
        "SA: share of pro-stereotyped sentences in which the pronoun of the stereotype is more "
        "probable than the other. sa_gender: the same for the options male and female of the "
        "gender questions. Dashed: no stereotype. "
        f"{interval_caption(table)} "
        f"n = {n}."
    )
    made = {"stereotype_accuracy": titled(chart, "Stereotype accuracy", caption, axis=axis)}
    if jsd_p is not None and len(jsd_p):
        above = curves(jsd_p, axis, JSD_P, group="group")
        made["gap_and_stereotype"] = titled(
            stacked(above, chart),
            "Gender gap and stereotype accuracy",
            "Above: JSD-P of the correct answer, for prompts whose answer is male or female. "
            f"Their distance is the gender gap. Below: stereotype accuracy. {caption}",
            axis=axis,
        )
    return made
