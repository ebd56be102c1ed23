"""The charts of a trade-off: both curves on one time axis, and one against the other."""

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import (
    HEIGHT,
    SERIES,
    color,
    column_tooltip,
    curves,
    interval_caption,
    stacked,
    with_series,
)
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis, step_names
from logitbank.analysis.charts.theme import DELTA, INK
from logitbank.analysis.families.tradeoff.metric import TradeOff
from logitbank.wording import counted

JSD_P = "JSD-P, scaled"


def charts(result: TradeOff) -> dict[str, Chart]:
    """`tradeoff`, performance against the gap, and `curves`, both over training."""
    return {"tradeoff": _tradeoff(result), "curves": _curves(result)}


def _tradeoff(result: TradeOff) -> Chart:
    settings = result.settings
    table = with_series(result.tradeoff)
    able = _performance_measure(table, settings)
    gap = Measure("gap", f"{_capital(settings['gap'])} (smaller is fairer)", scale="share")
    gap = gap._replace(band=("gap_low", "gap_high"))
    x, y = alt.X("gap:Q", **gap.about(table)), alt.Y("performance:Q", **able.about(table))
    way = _path(table, x, y, {gap.column: gap.title, able.column: able.title})
    key = ["model", "run", "step"]
    table = table.join(result.choices.select(key), on=key, how="semi")
    chosen = alt.Chart(table).encode(x=x, y=y)
    bars = chosen.mark_rule(opacity=0.6)
    chart = alt.layer(
        bars.encode(x=alt.X("gap_low:Q", **gap.about(table)), x2="gap_high:Q"),
        bars.encode(y=alt.Y("performance_low:Q", **able.about(table)), y2="performance_high:Q"),
        way,
        chosen.mark_point(shape="triangle", filled=True, size=50, color=INK),
    )
    caption = (
        f"{_capital(settings['metric'])} against {settings['gap']}, joined in the order of "
        "training: later checkpoints are darker. "
        f"{_choice(result)} n = {counted(len(result.tradeoff), 'checkpoint')}."
    )
    return titled(chart, "Performance against the gap", caption)


def _curves(result: TradeOff) -> Chart:
    settings = result.settings
    table = with_series(result.tradeoff)
    axis = StepAxis(table["step"].to_list())
    panels = [curves(table, axis, _performance_measure(table, settings))]
    parts = result.parts.join(table.unique(["model", "run"]), on=["model", "run"], how="semi")
    parts, what = parts.drop_nulls("step"), ""
    if len(parts):
        panels.append(curves(parts, axis, Measure("value", JSD_P, scale="share"), group="group"))
        what = f" Middle: {JSD_P} for each correct answer."
    title = _capital(settings["gap"])
    gap = Measure("gap", title, ("gap_low", "gap_high"), "share")
    if table[SERIES].n_unique() > 1:
        panels.append(curves(table, axis, gap))
    else:
        named = table.with_columns(measure=pl.lit(title))
        panels.append(curves(named, axis, gap, group="measure", colors={title: DELTA}))
    ends = ("gap_low", "gap_high"), ("performance_low", "performance_high")
    bands = (interval_caption(table, "95% intervals", band=each) for each in ends)
    caption = (
        f"Above: {settings['metric']}.{what} Below: {settings['gap']}, smaller is fairer. "
        f"{max(bands)} "
        f"n = {counted(len(table), 'checkpoint')}."
    )
    return titled(stacked(*panels), "Performance and the gap over training", caption, axis=axis)


def _path(table: pl.DataFrame, x: alt.X, y: alt.Y, titles: Mapping[str, str]) -> Chart:
    """One measure against another, joined in the order of training; later points are darker."""
    position, last = pl.int_range(pl.len()).over(SERIES), pl.len().over(SERIES) - 1
    table = table.with_columns(
        position=position,
        progress=position / last.clip(lower_bound=1),
        checkpoint=step_names(table["step"]),
    )
    names = table[SERIES].unique(maintain_order=True).to_list()
    tips = {"checkpoint": "Checkpoint", SERIES: "Model", **titles}
    shade = alt.Scale(domain=[0, 1], range=[0.2, 1])
    base = alt.Chart(table.select(*tips, "position", "progress"), height=1.25 * HEIGHT)
    base = base.encode(x=x, y=y, color=color(SERIES, names))
    return alt.layer(
        base.mark_line(strokeWidth=1, opacity=0.5).encode(order="position:Q"),
        base.mark_point(filled=True, size=30).encode(
            opacity=alt.Opacity("progress:Q", scale=shade, legend=None),
            tooltip=[column_tooltip(table, name, text) for name, text in tips.items()],
        ),
    )


def _performance_measure(table: pl.DataFrame, settings: Mapping[str, Any]) -> Measure:
    is_share = table["performance"].is_between(0, 1).all()
    band = ("performance_low", "performance_high")
    scale: Any = "share" if is_share else "linear"
    return Measure("performance", _capital(settings["metric"]), band, scale)


def _choice(result: TradeOff) -> str:
    loss = result.choices["max_accuracy_loss"][0]
    return (
        f"Triangle: smallest gap among checkpoints that lose at most {loss:g} points, with 95% "
        "intervals."
    )


def _capital(text: object) -> str:
    return f"{text}"[:1].upper() + f"{text}"[1:]
