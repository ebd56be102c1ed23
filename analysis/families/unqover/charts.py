"""The charts of UnQover: ranked subjects, attributes, and the measures."""

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, sample_size, titled
from logitbank.analysis.charts.curves import (
    SERIES,
    at_checkpoint,
    dots,
    drawn_checkpoint,
    with_series,
)
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.families.unqover import FAMILY
from logitbank.analysis.families.unqover.findings import last_rows
from logitbank.analysis.families.unqover.metric import Unqover
from logitbank.analysis.families.unqover.tables import ALL
from logitbank.analysis.results import measured
from logitbank.analysis.results.series import figure_name
from logitbank.wording import counted, step_name

ENDS = 15
"""Subjects at either end of a long ranking."""
ATTRIBUTES = 24
"""Attributes that are drawn."""


def charts(result: Unqover) -> dict[str, Chart]:
    """`ranked_subjects` and `attribute_strengths` of each category, and the measures."""
    found: dict[str, Chart] = {}
    categories = last_rows(result)["category"].unique(maintain_order=True).to_list()
    several = len(categories) > 1
    for category in categories:
        own = result.subjects.filter(split=ALL, category=category)
        found[figure_name("ranked_subjects", category, several)] = _ranked(own, category)
    for category in categories:
        name = figure_name("attribute_strengths", category, several)
        found[name] = _attributes(result, category)
    return found | measured.charts(FAMILY, result.headline)


def _ranked(table: pl.DataFrame, category: str) -> Chart:
    """Subjects at one checkpoint, in the order of the first model at the one on paper."""
    table = with_series(table)
    step = drawn_checkpoint(table)
    drawn = table.filter(pl.col("step").eq_missing(pl.lit(step)))
    first = drawn.filter(pl.col(SERIES) == pl.first(SERIES)).sort("rank", "subject")["subject"]
    ends = [*first.head(ENDS), *first.tail(max(0, min(ENDS, len(first) - ENDS)))]
    gendered = table["gender"].null_count() == 0 and table[SERIES].n_unique() == 1
    shown = table.filter(pl.col("subject").is_in(ends))
    shown = shown.sort(pl.col("subject").cast(pl.Enum(ends)), maintain_order=True)
    gamma = Measure("gamma", "γ (preferred →)", ("gamma_low", "gamma_high"))
    tooltip = {
        "Model": SERIES, "Subject": "subject", "Rank": "rank", "γ": "gamma", "γ, low": "gamma_low",
        "γ, high": "gamma_high", "p, adjusted": "p_adjusted", "Strongest attribute": "attribute",
    }  # fmt: skip
    group = "gender" if gendered else SERIES
    chart = at_checkpoint(
        shown, lambda rows: dots(rows, shown, gamma, "subject", group=group, tooltip=tooltip)
    )
    banded = shown["gamma_low"].is_not_nan().any()
    caption = (
        "γ: preference for a subject (C), averaged over partners and contexts, then over "
        f"attributes; {category}, {step_name(step)}."
        + (" Lines: 95% intervals over attributes." if banded else "")
        + (f" Both ends of {len(first):,} ranked subjects." if len(ends) < len(first) else "")
        + f" n = {counted(len(first), 'subject')}, "
        f"{sample_size(table['attributes'], 'attribute').removeprefix('n = ')}."
    )
    return titled(chart, f"Subjects, {category}", caption)


def _attributes(result: Unqover, category: str) -> Chart:
    """The attributes of greatest mean |γ| at the last checkpoint."""
    keys = last_rows(result).filter(category=category).select("model", "run", "category", "step")
    last = result.attributes.filter(split=ALL).join(
        keys, on=keys.columns, how="semi", nulls_equal=True
    )
    table = with_series(last)
    first = table.filter(pl.col(SERIES) == pl.first(SERIES))
    chosen = first.sort("strength", descending=True)["attribute"].head(ATTRIBUTES)
    table = table.filter(pl.col("attribute").is_in(chosen.implode()))
    measure = Measure("strength", "mean |γ|", None, "zero")
    what = "|γ|, averaged over subjects"
    if table["gamma_female"].null_count() == 0:
        measure = Measure("gamma_female", "γ (← male · female →)", None)
        what = "C towards the female name"
    order = table.sort(measure.column, descending=True)["attribute"].unique(maintain_order=True)
    table = table.sort(pl.col("attribute").cast(pl.Enum(order)), maintain_order=True)
    tooltip = {
        "Model": SERIES, "Attribute": "attribute", "Mean |γ|": "strength",
        "Strongest subject": "subject", "Its γ": "gamma",
    }  # fmt: skip
    chart = dots(alt.Chart(table), table, measure, "attribute", tooltip=tooltip)
    caption = (
        f"Dots: {what}. The {len(chosen):,} attributes of greatest mean |γ|, {category}, at the "
        f"last checkpoint. {sample_size(table['instances'], 'instance')} per attribute."
    )
    return titled(chart, f"Attributes, {category}", caption)
