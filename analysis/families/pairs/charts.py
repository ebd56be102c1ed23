"""The charts of minimal pairs: the score over training, and by group at one checkpoint."""

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import (
    SERIES,
    at_checkpoint,
    color,
    curves,
    drawn_checkpoint,
    horizontal,
    with_series,
)
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.families.pairs.findings import measure_of
from logitbank.analysis.families.pairs.metric import ALL, DIRECTIONS, Pairs
from logitbank.wording import counted, step_name

LINES = {"score": "all pairs"} | {f"{name}_score": f"{name} pairs" for name in DIRECTIONS}


def charts(result: Pairs) -> dict[str, Chart]:
    """`pairs` over training, and `groups` if there are any."""
    table = with_series(result.pairs, "score_kind")
    found = {"pairs": _training(table.filter(group=ALL), measure_of(result))}
    groups = table.filter(pl.col("group") != ALL)
    if len(groups):
        found["groups"] = _groups(groups, measure_of(result))
    return found


def _training(table: pl.DataFrame, measure: str) -> Chart:
    axis = StepAxis(table["step"].to_list())
    lines = [name for name in LINES if name in table.columns]
    keys = ["model", "run", "step", SERIES, "low", "high", "pairs"]
    long = table.unpivot(lines, index=keys, variable_name="line", value_name="value").with_columns(
        pl.col("line").replace_strict(LINES),
        pl.when(pl.col("line") == "score").then(pl.col("low", "high")),
    )
    chart = curves(
        long, axis, y="value", title=f"{measure} (%)", group="line" if len(lines) > 1 else None,
        tooltip={"Pairs": "pairs"},
    )  # fmt: skip
    n = counted(int(table["pairs"].max() or 0), "pair")  # type: ignore[arg-type]
    caption = (
        f"{measure}: share of pairs whose first sentence is the more probable one. Dashed: chance "
        f"(50%). Bands: 95% confidence intervals. n = {n}."
    )
    return titled(alt.layer(chart, horizontal(50)), measure, caption, axis=axis)


def _groups(table: pl.DataFrame, measure: str) -> Chart:
    names = table[SERIES].unique(maintain_order=True).to_list()
    groups = table["group"].unique(maintain_order=True).to_list()
    apart = {"yOffset": alt.YOffset(f"{SERIES}:N", sort=names)} if len(names) > 1 else {}
    used = ["model", "run", "step", SERIES, "group", "score", "low", "high", "pairs"]

    def draw(base: alt.Chart) -> Chart:
        y = alt.Y("group:N", title=None, sort=groups, axis=alt.Axis(labelLimit=140))
        base = base.encode(y=y, color=color(SERIES, names), **apart)  # type: ignore[arg-type]
        x, title = alt.Scale(zero=False), f"{measure} (%)"
        tips = [
            alt.Tooltip("group:N", title="Group"),
            alt.Tooltip(f"{SERIES}:N", title="Model"),
            *(alt.Tooltip(f"{name}:Q", format=".1f") for name in ("score", "low", "high")),
            alt.Tooltip("pairs:Q", title="Pairs"),
        ]
        chance = alt.Chart(pl.DataFrame({"score": [50.0]})).mark_rule(strokeDash=[4, 3])
        return alt.layer(
            chance.encode(x=alt.X("score:Q", title=title, scale=x)),
            base.mark_rule().encode(x=alt.X("low:Q", title=title, scale=x), x2="high:Q"),
            base.mark_point(filled=True, size=24, opacity=1).encode(
                x=alt.X("score:Q", title=title, scale=x), tooltip=tips
            ),
        )

    step = drawn_checkpoint(table)
    least, most = (counts := sorted(table["pairs"].to_list()))[0], counts[-1]
    n = counted(most, "pair") if least == most else f"{least:,} to {most:,} pairs"
    caption = (
        f"{measure} by group at {step_name(step)}: share of pairs whose first sentence is the more "
        f"probable one. Dashed: chance (50%). Bars: 95% confidence intervals. n = {n} in a group."
    )
    height = len(groups) * max(14, 8 * len(names))
    chart = at_checkpoint(table.select(used), draw).properties(height=height)
    return titled(chart, f"{measure} by group", caption)
