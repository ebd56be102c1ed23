"""The charts of a trade-off: performance against the gap, and the measures over training."""

from collections.abc import Mapping

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import (
    HEIGHT,
    SERIES,
    color,
    column_tooltip,
    with_series,
)
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import step_names
from logitbank.analysis.charts.theme import INK
from logitbank.analysis.families.tradeoff.metric import TradeOff, capital
from logitbank.analysis.families.tradeoff.tables import SMALLEST
from logitbank.analysis.results import measured
from logitbank.wording import counted


def charts(result: TradeOff) -> dict[str, Chart]:
    """`tradeoff`, performance against the gap, and the measures over training."""
    return {"tradeoff": _tradeoff(result), **measured.charts(*result.common)}


def _tradeoff(result: TradeOff) -> Chart:
    settings = result.settings
    table = with_series(result.tradeoff)
    band = ("performance_low", "performance_high")
    able = Measure("performance", capital(settings["metric"]), band, "share")
    gap = Measure("gap", f"{capital(settings['gap'])} (smaller is fairer)", scale="share")
    gap = gap._replace(band=("gap_low", "gap_high"))
    x, y = alt.X("gap:Q", **gap.about(table)), alt.Y("performance:Q", **able.about(table))
    way = _path(table, x, y, {gap.column: gap.title, able.column: able.title})
    choices = result.pairs.filter(choice=SMALLEST)
    key = {"model": "model", "run": "run", "step": "after"}
    table = table.join(choices, left_on=[*key], right_on=[*key.values()], how="semi")
    chosen = alt.Chart(table).encode(x=x, y=y)
    bars = chosen.mark_rule(opacity=0.6)
    chart = alt.layer(
        bars.encode(x=alt.X("gap_low:Q", **gap.about(table)), x2="gap_high:Q"),
        bars.encode(y=alt.Y("performance_low:Q", **able.about(table)), y2="performance_high:Q"),
        way,
        chosen.mark_point(shape="triangle", filled=True, size=50, color=INK),
    )
    caption = (
        f"{capital(settings['metric'])} against {settings['gap']}, joined in the order of "
        "training: later checkpoints are darker. "
        f"{_choice(result)} n = {counted(len(result.tradeoff), 'checkpoint')}."
    )
    return titled(chart, "Performance against the gap", caption)


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


def _choice(result: TradeOff) -> str:
    loss = result.settings["max_accuracy_loss"]
    return (
        f"Triangle: smallest gap among checkpoints that lose at most {loss:g} points, with 95% "
        "intervals."
    )
