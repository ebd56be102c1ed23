"""The charts of distances: along training, between runs, and between all checkpoints."""

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, sample_size, titled
from logitbank.analysis.charts.curves import (
    SERIES,
    curves,
    interval_caption,
    stacked,
    with_series,
)
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.families.distance.metric import Distances
from logitbank.store.steps import in_order

MOST_SERIES = 6
"""Most heat maps on a page."""
LONGEST = 20
"""Characters of a name above which a heat map has a row for itself."""
INTERVALS = "95% confidence intervals over prompts"
PANELS = {
    "js_previous": Measure("value", "JSD from the previous\ncheckpoint (nats)", scale="zero"),
    "js_last": Measure("value", "JSD from the last\ncheckpoint (nats)", scale="zero"),
    "entropy": Measure("value", "Entropy (nats)", scale="zero"),
}


def charts(result: Distances) -> dict[str, Chart]:
    """`distance`, `runs` if a model has several, and `map`."""
    table = result.measures
    drawn = {"distance": _along(table)}
    if len(runs := table.filter(measure="kl_runs")):
        drawn["runs"] = _runs(runs)
    if result.map["step"].n_unique() > 1:
        drawn["map"] = _map(result.map)
    return drawn


def _along(table: pl.DataFrame) -> Chart:
    axis = StepAxis(table["step"].to_list())
    rows = {name: table.filter(measure=name) for name in PANELS}
    panels = [curves(rows[name], axis, each) for name, each in PANELS.items() if len(rows[name])]
    caption = (
        "Jensen–Shannon divergence (JSD) between distributions over the vocabulary, and their "
        f"entropy. {interval_caption(table, INTERVALS)} "
        f"{sample_size(table['items'], 'item')}."
    )
    return titled(stacked(*panels), "Distances along training", caption, axis=axis)


def _runs(table: pl.DataFrame) -> Chart:
    runs = pl.col("run").unique(maintain_order=True)
    named = []
    of_model = table.group_by("model", maintain_order=True).agg(runs)
    for model, names in of_model.iter_rows():
        if len(names) == 2:  # the distance of each from the other is one curve
            named.append(" and ".join(names))
            other = (pl.col("model") == model) & (pl.col("run") == names[1])
            table = table.filter(~other)
            own = pl.when(model=model).then(pl.lit(named[-1])).otherwise("run")
            table = table.with_columns(run=own)
    two = f" Two runs have one curve: {', '.join(dict.fromkeys(named))}." if named else ""
    axis = StepAxis(table["step"].to_list())
    measure = Measure("value", "KL between runs\n(nats, log scale)", scale="log")
    caption = (
        "Kullback–Leibler divergence of each run from the other runs of its model at the same "
        f"step, the mean of both directions.{two} "
        f"{interval_caption(table, INTERVALS)} {sample_size(table['items'], 'item')}."
    )
    return titled(curves(table, axis, measure), "Distance between runs", caption, axis=axis)


def _map(table: pl.DataFrame) -> Chart:
    """Cells of all pairs of checkpoints."""
    table = with_series(table)
    series = table[SERIES].unique(maintain_order=True).to_list()
    drawn = series[:MOST_SERIES]
    table = table.filter(pl.col(SERIES).is_in(drawn))
    some = f" Drawn: {len(drawn)} of {len(series)} models and runs; the table has all."
    steps = in_order(table["step"].to_list())
    names = {step: "release" if step is None else f"{step:,}" for step in steps}
    cells = table.select(
        SERIES, pl.col("kl").round(6),
        a=pl.col("step").replace_strict(names, return_dtype=pl.String),
        b=pl.col("other_step").replace_strict(names, return_dtype=pl.String),
    )  # fmt: skip
    axis = alt.Axis(ticks=False, labelOverlap="greedy", labelSeparation=12)
    order = list(names.values())
    most = max(cells["kl"].to_list())
    heat: Chart = (
        alt.Chart(cells)
        .mark_rect()
        .encode(
            x=alt.X("a:O", sort=order, axis=axis, title="Training step"),
            y=alt.Y("b:O", sort=order[::-1], axis=axis, title="Training step"),
            color=alt.Color(
                "kl:Q",
                title="KL (nats)",
                scale=alt.Scale(type="sqrt", scheme="viridis", domain=[0, most]),
            ),
            tooltip=["a:N", "b:N", alt.Tooltip("kl:Q", format=".3g")],
        )
    )
    chart = heat.properties(height=180)
    if len(drawn) > 1:
        facet = alt.Facet(f"{SERIES}:N", header=alt.Header(title=None), sort=drawn)
        columns = 2 if max(map(len, drawn)) <= LONGEST else 1
        chart = heat.properties(height=130).facet(facet=facet, columns=columns, spacing=8)
        chart = chart.resolve_scale(x="independent", y="independent")
    caption = (
        "Kullback–Leibler divergence between every two checkpoints, the mean of both directions. "
        "Cells are checkpoints, so steps are not to scale. Colours: square root of the divergence, "
        f"from 0 (dark) to {most:.3g} nats (yellow). {sample_size(table['contexts'], 'context')}."
        f"{some if len(drawn) < len(series) else ''}"
    )
    return titled(chart, "Distances between all checkpoints", caption)
