"""The charts of comparing filters, and of searching for one."""

from functools import partial

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import (
    at_checkpoint,
    color,
    drawn_checkpoint,
)
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.theme import BLUE, GREY, MUTED, ORANGE
from logitbank.analysis.debias.results import NONE, TRAINED, UNTRAINED, DebiasComparison
from logitbank.analysis.frames.candidates import PLAIN
from logitbank.wording import counted, step_name

FILTERS = {NONE: GREY, UNTRAINED: ORANGE, TRAINED: BLUE}
MEASURES = {
    "icat": ("iCAT", (100.0, 50.0)),
    "lms": ("lms (%)", (100.0, 50.0)),
    "ss": ("ss (%)", (50.0,)),
    "abs_c": ("UnQover, mean |C|", ()),
}
"""Titles of axes, and the values of the ideal and of the random model."""
ROW = 16


def comparison_charts(result: DebiasComparison) -> dict[str, Chart]:
    """`icat`, `lms`, `ss` and `abs_c`: a row for each filter, prefix and language."""
    table = result.comparison.filter(pl.col("label") != "reference")
    series = ["model", "run"] if table.select("model", "run").n_unique() > 1 else []
    condition = pl.col("condition").replace(PLAIN, None)
    language = ["language"] if table["language"].n_unique() > 1 else []
    name = pl.concat_str(*series, "label", *language, condition, separator=", ", ignore_nulls=True)
    rows = table.with_columns(row=name)
    charts: dict[str, Chart] = {}
    for measure, (title, lines) in MEASURES.items():
        known = rows.drop_nulls(measure)
        if known.is_empty():
            continue
        # A chart of one checkpoint, which a page can choose.
        chart = at_checkpoint(known, partial(_dots, rows=known, measure=measure, lines=lines))
        caption = f"{title} at {step_name(drawn_checkpoint(known))}."
        if lines:
            n = counted(int(known["examples"].max() or 0), "example")  # type: ignore[arg-type]
            caption += (
                " Bars: 95% confidence intervals. Lines: ideal model, and random model at 50."
            )
        else:
            n = counted(int(result.unqover["instances"].max() or 0), "instance")  # type: ignore[arg-type]
        charts[measure] = titled(chart, title, f"{caption} n = {n}.")
    return charts


def _dots(
    base: alt.Chart, rows: pl.DataFrame, measure: str, lines: tuple[float, ...] = ()
) -> Chart:
    """A value in each row, coloured by its filter, with its interval."""
    title = MEASURES[measure][0]
    band = (f"{measure}_low", f"{measure}_high") if f"{measure}_low" in rows.columns else None
    about = Measure(measure, title, band, "percent" if lines else "zero").about(rows)
    base = base.encode(
        x=alt.X(f"{measure}:Q", **about),
        y=alt.Y("row:N", title=None, sort=None, axis=alt.Axis(labelLimit=0)),
        color=color("filter", list(FILTERS), FILTERS, legend=False),
        tooltip=[alt.Tooltip("row:N", title="Row"),
                 alt.Tooltip(f"{measure}:Q", title=title, format=".4~g")],
    )  # fmt: skip
    layers = [
        alt.Chart(pl.DataFrame({"level": [line]}))
        .mark_rule(strokeDash=[4, 3], color=MUTED)
        .encode(x="level:Q")
        for line in lines
    ]
    if band:
        low, high = band
        layers.append(base.mark_rule().encode(x=alt.X(f"{low}:Q", **about), x2=f"{high}:Q"))
    layers.append(base.mark_point(filled=True, size=40, opacity=1))
    return alt.layer(*layers).properties(height=ROW * rows["row"].n_unique())
