"""The charts of comparing filters."""

from functools import partial
from textwrap import wrap

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import (
    at_checkpoint,
    color,
    drawn_checkpoint,
)
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.theme import BLUE, GREEN, GREY, MUTED, ORANGE
from logitbank.analysis.debias.findings import LANGUAGES
from logitbank.analysis.debias.results import (
    ERASED,
    NONE,
    REFERENCE,
    TRAINED,
    UNTRAINED,
    DebiasComparison,
)
from logitbank.analysis.frames.candidates import PLAIN
from logitbank.wording import counted, step_name

FILTERS = {NONE: GREY, UNTRAINED: ORANGE, TRAINED: BLUE, ERASED: GREEN}
MEASURES = {
    "icat": ("iCAT", (100.0, 50.0)),
    "lms": ("lms (%)", (100.0, 50.0)),
    "ss": ("ss (%)", (50.0,)),
    "abs_c": ("UnQover, mean |C|", ()),
}
"""Titles of axes, and the values of the ideal and of the random model."""
HEIGHTS = (16, 19)
"""Points of a row with one line of text, and with two."""
LINE = 28
"""Longest line of a label, in letters: two lines leave most of a narrow column to the plot."""
HEADING, BREAK = "\t", "\n"
"""After the heading of a row's name, and between lines."""


def comparison_charts(result: DebiasComparison) -> dict[str, Chart]:
    """`icat`, `lms`, `ss` and `abs_c`: a row for each filter, prefix, language and model."""
    rows = _with_names(result.comparison)
    charts: dict[str, Chart] = {}
    for measure, (title, lines) in MEASURES.items():
        known = rows.drop_nulls(measure)
        scored = known.filter(pl.col("label") != REFERENCE)
        if scored.is_empty():
            continue
        # A chart of one checkpoint, which a page can choose.
        chart = at_checkpoint(known, partial(_dots, rows=known, measure=measure, lines=lines))
        caption = f"{title} at {step_name(drawn_checkpoint(scored))}."
        if lines:
            n = counted(int(known["examples"].max() or 0), "example")  # type: ignore[arg-type]
            caption += " Bars: 95% confidence intervals. Lines: ideal and random model."
        else:
            n = counted(int(result.unqover["instances"].max() or 0), "instance")  # type: ignore[arg-type]
        charts[measure] = titled(chart, title, f"{caption} n = {n}.")
    return charts


def _with_names(table: pl.DataFrame) -> pl.DataFrame:
    """With the name of each row: a heading, and filter and prefix in lines.

    The ideal and the random model are at every step.
    """
    reference = pl.col("label") == REFERENCE
    scored = table.filter(~reference)
    models = scored.select("model", "run").unique()
    several = {
        "model": models["model"].n_unique() > 1,
        "run": models["model"].is_duplicated().any(),
        "language": scored["language"].n_unique() > 1,
    }
    heading = [
        pl.col(name).replace(LANGUAGES) for name, named in several.items() if named
    ]  # fmt: skip
    condition = pl.col("condition").replace(PLAIN, None)
    ideal = table.filter(reference).drop("step").join(scored.select("step").unique(), how="cross")
    both = pl.concat([scored, ideal.select(table.columns)])
    return both.with_columns(
        heading=pl.when(~reference).then(_in_lines(*heading)).otherwise(pl.lit("")),
        row=pl.when(reference).then("model").otherwise(_in_lines("label", condition)),
        run=pl.col("run").fill_null(""),
    ).with_columns(row=pl.col("heading") + HEADING + pl.col("row"))


def _in_lines(*parts: pl.Expr | str) -> pl.Expr:
    text = pl.concat_str(*parts, separator=", ", ignore_nulls=True) if parts else pl.lit("")
    return text.map_elements(lambda text: BREAK.join(wrap(text, LINE)), return_dtype=pl.String)


def _dots(
    base: alt.Chart, rows: pl.DataFrame, measure: str, lines: tuple[float, ...] = ()
) -> Chart:
    """A value in each row, coloured by its filter, with its interval."""
    title = MEASURES[measure][0]
    band = (f"{measure}_low", f"{measure}_high") if f"{measure}_low" in rows.columns else None
    about = Measure(measure, title, band, "percent" if lines else "zero").about(rows)
    names = list[str]()
    for heading, name in rows.select("heading", "row").unique(maintain_order=True).iter_rows():
        names += [heading] if heading and heading not in names else []
        names.append(name)
    axis = alt.Axis(
        labelLimit=0,
        labelLineHeight=9,
        labelExpr=r"split(slice(datum.label, indexof(datum.label, '\t') + 1), '\n')",
        labelFontWeight={
            "condition": {"test": r"indexof(datum.value, '\t') < 0", "value": "bold"},
            "value": "normal",
        },
    )
    base = base.encode(
        x=alt.X(f"{measure}:Q", **about),
        y=alt.Y("row:N", title=None, sort=None, axis=axis, scale=alt.Scale(domain=names)),
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
    height = HEIGHTS[any(BREAK in name for name in names)]
    return alt.layer(*layers).properties(height=height * len(names))
