"""The charts of GEST: the stereotype rate over training, and every stereotype at one checkpoint."""

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, sample_size, titled
from logitbank.analysis.charts.curves import (
    SERIES,
    Measure,
    at_checkpoint,
    curves,
    dots,
    drawn_checkpoint,
    horizontal,
    with_series,
)
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.families.gest.metric import Gest
from logitbank.analysis.families.gest.tables import ABOUT_WOMEN, ALL, RATE
from logitbank.wording import step_name


def charts(result: Gest) -> dict[str, Chart]:
    """`rate`, and `stereotypes`."""
    return {
        "rate": _rate(with_series(result.rates.filter(part=RATE))),
        "stereotypes": _stereotypes(with_series(result.stereotypes.filter(template=ALL))),
    }


def _rate(table: pl.DataFrame) -> Chart:
    several = table["template"].n_unique() > 2
    drawn = table.filter(pl.lit(several) | (pl.col("template") == ALL)).with_columns(
        pl.when(pl.col("template") == ALL).then(pl.col("low", "high")),
        template=pl.when(pl.col("template") == ALL)
        .then(pl.lit("mean of templates"))
        .otherwise(pl.format("template {}", "template")),
    )
    axis = StepAxis(table["step"].to_list())
    measure = Measure("score", "Stereotype rate (nats)")
    tooltip = {"g_s as published": "published", "Sentences": "sentences"}
    group = "template" if several else None
    chart = curves(drawn, axis, measure, group=group, tooltip=tooltip)
    caption = (
        "Stereotype rate: how much more probable a man is than a woman with stereotypes about men, "
        "minus the same with stereotypes about women. Dashed: no stereotype. Bands: 95% "
        f"confidence intervals of the mean. {sample_size(table['sentences'], 'sentence')}."
    )
    return titled(alt.layer(chart, horizontal(0)), "Stereotype rate", caption, axis=axis)


def _stereotypes(table: pl.DataFrame) -> Chart:
    measure = Measure("score", "Score (nats)")
    tooltip = {"Stereotype": "stereotype", "About": "part", "Model": SERIES, "Score": "score",
               "As published": "published", "Sentences": "sentences"}  # fmt: skip
    chart = at_checkpoint(
        table, lambda rows: dots(rows, table, measure, "stereotype", tooltip=tooltip)
    )
    caption = (
        f"Score of each stereotype at {step_name(drawn_checkpoint(table))}, mean of templates: "
        f"above 0, a man is more probable. The first {ABOUT_WOMEN} stereotypes are about women, "
        "the others about men. Bars: 95% confidence intervals. "
        f"{sample_size(table['sentences'], 'sentence')} of a stereotype."
    )
    return titled(chart, "Scores by stereotype", caption)
