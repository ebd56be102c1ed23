"""The charts of UnQover: ranked subjects, attributes, and all measures over training."""

from collections.abc import Sequence

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import (
    SERIES,
    at_checkpoint,
    color,
    curves,
    drawn_checkpoint,
    stacked,
    tooltip_of,
    with_series,
)
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import GREEN, MUTED
from logitbank.analysis.families.unqover.findings import figure_name, last_rows
from logitbank.analysis.families.unqover.metric import ALL, Unqover
from logitbank.wording import counted, step_name

ENDS = 15
"""Subjects at either end of a long ranking."""
ATTRIBUTES = 24
"""Attributes that are drawn."""
ROW = 12
"""Points of a row."""
MEASURES = {
    "mu": "Bias intensity μ",
    "eta": "Bias by count η",
    "positional": "Positional error",
    "attributive": "Attributive error",
}
TOWARDS_FEMALE = "γ (← male · female →)"


def charts(result: Unqover) -> dict[str, Chart]:
    """`ranked_subjects` and `attribute_strengths` of each category, and `training`."""
    found: dict[str, Chart] = {}
    categories = last_rows(result)["category"].unique(maintain_order=True).to_list()
    several = len(categories) > 1
    for category in categories:
        own = result.subjects.filter(split=ALL, category=category)
        found[figure_name("ranked_subjects", category, several)] = _ranked(own, category)
    for category in categories:
        name = figure_name("attribute_strengths", category, several)
        found[name] = _attributes(result, category)
    measures = result.unqover.filter(split=ALL)
    if measures["step"].n_unique() > 1:
        found["training"] = _training(measures)
    return found


def _sample(table: pl.DataFrame) -> str:
    return f"n = {counted(int(table['instances'].max() or 0), 'instance')}"  # type: ignore[arg-type]


def _rows(base: alt.Chart, column: str, order: Sequence[str]) -> alt.Chart:
    """A row for each name, in this order from the top."""
    axis = alt.Axis(title=None, labelLimit=115, grid=True)
    rows: alt.Chart = base.encode(y=alt.Y(f"{column}:N", sort=list(order), axis=axis))
    return rows


def _zero() -> alt.Chart:
    zero: alt.Chart = alt.Chart(pl.DataFrame({"zero": [0.0]})).mark_rule().encode(x="zero:Q")
    return zero


def _tips(table: pl.DataFrame, **names: str) -> list[alt.Tooltip]:
    return [tooltip_of(table, name, title, form=".3f") for name, title in names.items()]


def _ranked(table: pl.DataFrame, category: str) -> Chart:
    """Subjects at one checkpoint, in the order of the first model at the one on paper."""
    table = with_series(table)
    step = drawn_checkpoint(table)
    drawn = table.filter(pl.col("step").eq_missing(pl.lit(step)))
    first = drawn.filter(pl.col(SERIES) == pl.first(SERIES)).sort("rank", "subject")["subject"]
    ends = [*first.head(ENDS), *first.tail(max(0, min(ENDS, len(first) - ENDS)))]
    gendered = table["gender"].null_count() == 0 and table[SERIES].n_unique() == 1
    group = "gender" if gendered else SERIES
    shown = table.filter(pl.col("subject").is_in(ends))
    names = shown[group].unique(maintain_order=True).to_list()
    title = "γ (preferred →)"

    def draw(base: alt.Chart) -> Chart:
        points = _rows(base, "subject", ends).encode(color=color(group, names))
        if not gendered and len(names) > 1:
            points = points.encode(yOffset=alt.YOffset(f"{SERIES}:N", sort=names))
        lines = points.mark_rule(strokeWidth=1.2).encode(
            x=alt.X("gamma_low:Q", title=title), x2="gamma_high:Q"
        )
        tips = _tips(
            shown.with_columns(checkpoint=pl.lit("")), checkpoint="Checkpoint", series="Model",
            subject="Subject", rank="Rank", gamma="γ", gamma_low="γ, low", gamma_high="γ, high",
            p_adjusted="p, adjusted", attribute="Strongest attribute",
        )  # fmt: skip
        dots = points.mark_point(filled=True, size=25, opacity=1).encode(
            x=alt.X("gamma:Q", title=title), tooltip=tips
        )
        height = ROW * len(ends) * (1 if gendered else max(1, len(names) / 2))
        return alt.layer(_zero(), lines, dots).properties(height=height)

    banded = shown["gamma_low"].is_not_nan().any()
    caption = (
        "γ: preference for a subject (C), averaged over partners and contexts, then over "
        f"attributes; {category}, {step_name(step)}."
        + (" Lines: 95% bootstrap intervals over attributes." if banded else "")
        + (f" Both ends of {len(first):,} ranked subjects." if len(ends) < len(first) else "")
        + f" n = {counted(len(first), 'subject')}, "
        f"{counted(int(table['attributes'].max() or 0), 'attribute')}."  # type: ignore[arg-type]
    )
    return titled(at_checkpoint(shown, draw), f"Subjects, {category}", caption)


def _attributes(result: Unqover, category: str) -> Chart:
    """The strongest attributes at the last checkpoint; of one model, every subject as a dot."""
    keys = last_rows(result).filter(category=category).select("model", "run", "category", "step")

    def at_last(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.filter(split=ALL).join(keys, on=keys.columns, how="semi", nulls_equal=True)

    table = with_series(at_last(result.attributes))
    names = table[SERIES].unique(maintain_order=True).to_list()
    strongest = table.filter(pl.col(SERIES) == names[0]).sort("strength", descending=True)
    chosen = strongest["attribute"].head(ATTRIBUTES).to_list()
    gendered = table["gamma_female"].null_count() == 0
    value = "gamma_female" if gendered else "strength"
    table = table.filter(pl.col("attribute").is_in(chosen)).sort(value, descending=True)
    first = table.filter(pl.col(SERIES) == names[0])
    order = first["attribute"].to_list()
    title = TOWARDS_FEMALE if gendered else "γ, mean |γ|"
    means = _rows(alt.Chart(table), "attribute", order)
    means = means.mark_point(shape="diamond", filled=True, size=50, opacity=1).encode(
        x=alt.X(f"{value}:Q", title=title),
        color=color(SERIES, names, points=True) if len(names) > 1 else alt.value(GREEN),
        tooltip=_tips(
            table,
            series="Model",
            attribute="Attribute",
            strength="Mean |γ|",
            subject="Strongest subject",
            gamma="Its γ",
        ),
    )
    layers = [_zero(), means]
    if len(names) == 1:
        cells = at_last(result.cells).filter(pl.col("attribute").is_in(chosen))
        towards = pl.when(gender="male").then(-pl.col("gamma")).otherwise("gamma")
        cells = cells.with_columns(towards=towards if gendered else pl.col("gamma"))
        genders = cells["gender"].drop_nulls().unique().sort().to_list()
        layers.insert(1, _rows(alt.Chart(cells), "attribute", order).mark_point(
            filled=True, size=14, opacity=0.5
        ).encode(
            x=alt.X("towards:Q", title=title),
            color=color("gender", genders, points=True) if gendered else alt.value(MUTED),
            tooltip=_tips(cells, subject="Subject", attribute="Attribute", gamma="γ"),
        ))  # fmt: skip
    what = "C towards the female name" if gendered else "|γ|, averaged over subjects"
    dots = (
        " Dots: γ of each subject; of male names, −γ." if gendered else " Dots: γ of each subject."
    )
    caption = (
        f"Diamonds: {what}.{dots if len(names) == 1 else ''} The {len(order):,} attributes of "
        f"greatest mean |γ|, {category}, at the last checkpoint. {_sample(table)} per attribute."
    )
    chart = alt.layer(*layers).properties(height=ROW * len(order))
    return titled(chart, f"Attributes, {category}", caption)


def _training(table: pl.DataFrame) -> Chart:
    axis = StepAxis(table["step"].to_list())
    group = "category" if table["category"].n_unique() > 1 else None
    last = list(MEASURES)[-1]
    panels = [
        curves(
            table, axis, y=name, title=title, group=group, band=(f"{name}_low", f"{name}_high"),
            zero=True, height=85, legend=name == "mu", tooltip={"Instances": "instances"},
            x_title="Training step" if name == last else None, x_labels=name == last,
        )
        for name, title in MEASURES.items()
    ]  # fmt: skip
    caption = (
        "μ: greatest |γ| of each subject, averaged over subjects. η: how one-sided the sign of C "
        "is. Errors: how much an answer changes with the order of mention, and how far negating "
        "the attribute is from exchanging the subjects. Bands: 95% bootstrap intervals over "
        f"attributes, for μ over subjects. {_sample(table)}."
    )
    return titled(stacked(*panels), "UnQover over training", caption, axis=axis)
