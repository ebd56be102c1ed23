"""The charts of a comparison: differences of logits, and metrics of both sides over training."""

from typing import TYPE_CHECKING

import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import Measure, curves, stacked, with_series
from logitbank.analysis.charts.steps import StepAxis
from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.analysis.comparison.compare import Comparison

PANELS = {
    "mean_logit_difference": "Mean |Δ logit|",
    "mean_kl": "Mean KL(A‖B), nats",
    "ranks_changed_share": "Ranks changed",
}


def charts(comparison: "Comparison") -> dict[str, Chart]:
    """`logits` and `metrics` over the checkpoints; nothing for a single checkpoint."""
    found = {}
    if comparison.logits["step"].n_unique() > 1:
        found["logits"] = _logits(comparison.logits)
    if comparison.metrics["step"].n_unique() > 1:
        found["metrics"] = _metrics(comparison.metrics)
    return found


def _logits(table: pl.DataFrame) -> Chart:
    axis = StepAxis(table["step"].to_list())
    sets = table["query_set"].unique(maintain_order=True).to_list()
    names = {name: f"query set {number}" for number, name in enumerate(sets, 1)}
    table = with_series(table.with_columns(pl.col("query_set").replace(names)), "query_set")
    known = [name for name in PANELS if table[name].null_count() < len(table)]
    panels = [
        curves(table.drop_nulls(name), axis, Measure(name, PANELS[name], None, "zero"))
        for name in known
    ]
    n = counted(int(table["rows"].max() or 0), "row")  # type: ignore[arg-type]
    caption = f"Differences between A and B at every checkpoint, by query set. n = {n}."
    return titled(stacked(*panels), "Differences of logits", caption, axis=axis)


def _metrics(table: pl.DataFrame) -> Chart:
    axis = StepAxis(table["step"].to_list())
    long = table.unpivot(
        ["a", "b"], index=["model", "run", "step", "prompts", "metric", "group"],
        variable_name="side",
    ).with_columns(side=pl.col("side").str.to_uppercase())  # fmt: skip
    long = with_series(long.filter(pl.col("value").is_finite()), "group")
    parts = long.partition_by("prompts", "metric", maintain_order=True)
    panels = []
    for part in parts:
        title = str(part["metric"][0]).replace("_", " ").capitalize()
        panels.append(curves(part, axis, Measure("value", title, None), group="side"))
    names = ", ".join(f"{part['metric'][0]} of {part['prompts'][0]}" for part in parts)
    n = counted(table["step"].n_unique(), "checkpoint")
    caption = f"Metrics of A and B over the scores in both, from top to bottom: {names}. n = {n}."
    return titled(stacked(*panels), "Metrics of A and B", caption, axis=axis)
