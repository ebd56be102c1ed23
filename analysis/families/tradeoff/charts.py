"""The charts of a trade-off: both curves on one time axis, and one against the other."""

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import (
    SERIES,
    Measure,
    color,
    curves,
    path,
    stacked,
    with_series,
)
from logitbank.analysis.charts.steps import StepAxis
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
    able = _performance_measure(settings)
    gap = Measure("gap", f"{_capital(settings['gap'])} (smaller is fairer)")
    way = path(table, gap, able)
    names = table[SERIES].unique(maintain_order=True).to_list()
    base = alt.Chart(table.filter("on_front").sort("gap")).encode(
        x="gap:Q", y="performance:Q", color=color(SERIES, names)
    )
    bars = base.mark_rule(opacity=0.4)
    key = ["model", "run", "step"]
    chosen = alt.Chart(table.join(result.choices.select(key).unique(), on=key, how="semi"))
    chart = alt.layer(
        bars.encode(x=alt.X("gap_low:Q", title=gap.title), x2="gap_high:Q"),
        bars.encode(y=alt.Y("performance_low:Q", title=able.title), y2="performance_high:Q"),
        base.mark_line(strokeWidth=2, interpolate="step-after").encode(order="gap:Q"),
        base.mark_point(size=70),
        way,
        chosen.mark_point(shape="triangle", filled=True, size=50, color=INK).encode(
            x="gap:Q", y="performance:Q"
        ),
    )
    caption = (
        f"{_capital(settings['metric'])} against {settings['gap']}, joined in the order of "
        "training: later checkpoints are darker, the first and the last one have their steps. "
        f"Rings and the strong line: Pareto front, with 95% intervals.{_choices(result)} "
        f"n = {counted(len(table), 'checkpoint')}."
    )
    return titled(chart, "Performance against the gap", caption)


def _curves(result: TradeOff) -> Chart:
    settings = result.settings
    table = with_series(result.tradeoff)
    axis = StepAxis(table["step"].to_list())
    panels = [curves(table, axis, _performance_measure(settings))]
    parts = result.parts.join(table.unique(["model", "run"]), on=["model", "run"], how="semi")
    parts, what = parts.drop_nulls("step"), ""
    if len(parts):
        panels.append(curves(parts, axis, Measure("value", JSD_P, scale="zero"), group="group"))
        what = f" Middle: {JSD_P} for each correct answer."
    title = _capital(settings["gap"])
    gap = Measure("gap", title, ("gap_low", "gap_high"), "zero")
    if table[SERIES].n_unique() > 1:
        panels.append(curves(table, axis, gap))
    else:
        named = table.with_columns(measure=pl.lit(title))
        panels.append(curves(named, axis, gap, group="measure", colors={title: DELTA}))
    caption = (
        f"Above: {settings['metric']}.{what} Below: {settings['gap']}, smaller is fairer. Bands: "
        f"95% intervals. n = {counted(len(table), 'checkpoint')}."
    )
    return titled(stacked(*panels), "Performance and the gap over training", caption, axis=axis)


def _performance_measure(settings: Mapping[str, Any]) -> Measure:
    return Measure(
        "performance", _capital(settings["metric"]), ("performance_low", "performance_high")
    )


def _choices(result: TradeOff) -> str:
    losses = result.choices["max_accuracy_loss"].unique().sort().to_list()
    return (
        f" Triangles: smallest gap among checkpoints that lose at most "
        f"{' or '.join(f'{loss:g}' for loss in losses)} points."
    )


def _capital(text: object) -> str:
    return f"{text}"[:1].upper() + f"{text}"[1:]
