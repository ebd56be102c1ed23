"""The charts of GEST: the stereotype rate over training, and every stereotype at one checkpoint."""

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
from logitbank.analysis.families.gest import ABOUT_WOMEN, ALL
from logitbank.analysis.families.gest.metric import Gest
from logitbank.analysis.families.gest.tables import RATE, of_all, of_each
from logitbank.wording import step_name

MEAN = "mean of templates"


def charts(result: Gest) -> dict[str, Chart]:
    """`rate`, and `stereotypes`; `languages` if there are several."""
    rates = result.rates.filter(part=RATE)
    languages = of_each(rates).filter(template=ALL)
    return {
        "rate": _rate(with_series(of_all(rates))),
        "stereotypes": _stereotypes(with_series(of_all(result.stereotypes).filter(template=ALL))),
        **({"languages": _languages(with_series(languages))} if len(languages) else {}),
    }


def _languages(table: pl.DataFrame) -> Chart:
    measure = Measure("score", "Stereotype rate (nats)")
    tooltip = {"Language": "language", "Model": SERIES, "Rate": "score", "Sentences": "sentences"}
    chart = at_checkpoint(
        table, lambda rows: dots(rows, table, measure, "language", tooltip=tooltip)
    )
    caption = (
        f"Stereotype rate of each language at {step_name(drawn_checkpoint(table))}: 0 is no "
        "stereotype. "
        f"{interval_caption(table, of_dots=True)} "
        f"{sample_size(table['sentences'], 'sentence')} of a language."
    )
    return titled(chart, "Stereotype rate by language", caption)


def _rate(table: pl.DataFrame) -> Chart:
    """Over training, by template if there is one run; at one checkpoint, a row per template."""
    is_mean, number = pl.col("template") == ALL, pl.format("template {}", "template")
    table = table.with_columns(template=pl.when(is_mean).then(pl.lit(MEAN)).otherwise(number))
    measure = Measure("score", "Stereotype rate (nats)")
    tooltip = {"Model": SERIES, "Rate": "score", "g_s as published": "published",
               "Sentences": "sentences"}  # fmt: skip
    axis = StepAxis(table["step"].to_list()) if table["step"].n_unique() > 1 else None
    one_run = table[SERIES].n_unique() == 1
    of = "" if one_run or axis is None else f", {MEAN}"
    if axis is None:
        chart = at_checkpoint(
            table, lambda rows: dots(rows, table, measure, "template", tooltip=tooltip)
        )
    else:
        table = table if one_run else table.filter(template=MEAN)
        group = "template" if one_run else None
        curve = curves(table, axis, measure, group=group, tooltip=tooltip)
        chart = alt.layer(curve, horizontal(0))
    caption = (
        f"Stereotype rate{of}: how much more probable a man is than a woman with stereotypes about "
        "men, minus the same with stereotypes about women. Dashed: no stereotype. "
        f"{interval_caption(table, of_dots=axis is None)} "
        f"{sample_size(table['sentences'], 'sentence')}."
    )
    return titled(chart, "Stereotype rate", caption, axis=axis)


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
        "the others about men. "
        f"{interval_caption(table, of_dots=True)} "
        f"{sample_size(table['sentences'], 'sentence')} of a stereotype."
    )
    return titled(chart, "Scores by stereotype", caption)
