"""The charts of a trade-off: both curves on one time axis, and one against the other."""

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import (
    SERIES,
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


def charts(result: TradeOff) -> dict[str, Chart]:
    """`tradeoff`, performance against the gap, and `curves`, both over training."""
    return {"tradeoff": _tradeoff(result), "curves": _curves(result)}


def _performance(settings: Mapping[str, Any]) -> str:
    name = _capital(settings["metric"])
    return name if settings["higher_is_better"] else f"{name} (reversed)"


def _tradeoff(result: TradeOff) -> Chart:
    settings = result.settings
    table = with_series(result.tradeoff)
    gap = _capital(settings["gap"])
    titles = (f"{gap} (smaller is fairer)", _performance(settings))
    reverse = not settings["higher_is_better"]
    way = path(table, x="gap", y="performance", titles=titles, reverse=reverse)
    names = table[SERIES].unique(maintain_order=True).to_list()
    base = alt.Chart(table.filter("on_front").sort("gap")).encode(
        x="gap:Q", y="performance:Q", color=color(SERIES, names)
    )
    front = base.mark_line(strokeWidth=2, interpolate="step-after").encode(order="gap:Q")
    rings = base.mark_point(size=70)
    bars = [
        base.mark_rule(opacity=0.4).encode(x=alt.X("gap_low:Q", title=titles[0]), x2="gap_high:Q"),
        base.mark_rule(opacity=0.4).encode(
            y=alt.Y("performance_low:Q", title=titles[1]), y2="performance_high:Q"
        ),
    ]
    layers = [*bars, front, rings, way]
    key = ["model", "run", "step"]
    chosen = alt.Chart(table.join(result.choices.select(key).unique(), on=key, how="semi"))
    marks = chosen.mark_point(shape="triangle", filled=True, size=50, color=INK)
    layers.append(marks.encode(x="gap:Q", y="performance:Q"))
    caption = (
        f"{_capital(settings['metric'])} against {settings['gap']}, joined in the order of "
        "training: later checkpoints are darker, the first and the last one have their steps. "
        f"Rings and the strong line: Pareto front, with 95% intervals.{_choices(result)} "
        f"n = {_sample(table)}."
    )
    return titled(alt.layer(*layers), "Performance against the gap", caption)


def _curves(result: TradeOff) -> Chart:
    settings = result.settings
    table = with_series(result.tradeoff)
    axis = StepAxis(table["step"].to_list())
    metric, gap = _performance(settings), _capital(settings["gap"])
    band = ("performance_low", "performance_high")
    top = curves(
        table, axis, y="performance", title=metric, band=band, x_title=None, x_labels=False,
        reverse=not settings["higher_is_better"], height=110,
    )  # fmt: skip
    panels: list[Chart] = [top]
    parts = result.parts.join(
        result.tradeoff.select("model", "run").unique(), on=["model", "run"], how="semi"
    ).drop_nulls("step")
    what = ""
    if len(parts):
        name = str(settings["parts"])
        panels.append(
            curves(
                parts, axis, y="value", title=name, group="group", zero=True, height=110,
                x_title=None, x_labels=False,
            )
        )  # fmt: skip
        what = f" Middle: {name} for each correct answer."
    several = table[SERIES].n_unique() > 1
    bottom = curves(
        table.with_columns(measure=pl.lit(gap)), axis, y="gap", title=gap,
        band=("gap_low", "gap_high"), zero=True, legend=False, height=110,
        group=None if several else "measure", colors={gap: DELTA},
    )  # fmt: skip
    panels.append(bottom)
    caption = (
        f"Above: {settings['metric']}.{what} Below: {settings['gap']}, smaller is fairer. Bands: "
        f"95% intervals. n = {_sample(table)}."
    )
    return titled(stacked(*panels), "Performance and the gap over training", caption, axis=axis)


def _choices(result: TradeOff) -> str:
    losses = result.choices["max_accuracy_loss"].unique().sort().to_list()
    if not losses:
        return ""
    unit = " points" if result.settings["unit"] == "points" else ""
    return (
        f" Triangles: smallest gap among checkpoints that lose at most "
        f"{' or '.join(f'{loss:g}' for loss in losses)}{unit}."
    )


def _sample(table: pl.DataFrame) -> str:
    return counted(len(table), "checkpoint")


def _capital(text: object) -> str:
    return f"{text}"[:1].upper() + f"{text}"[1:]
