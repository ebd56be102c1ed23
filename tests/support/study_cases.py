"""A study of a made-up result: three groups of two runs, with a release, and a bar chart."""

from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import color, curves
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.finding import Finding
from logitbank.analysis.results.tables import Result
from logitbank.analysis.study import Study

STEPS = (0, 1, 2, 4, 8, 16, 32, 64, None)
GROUPS = ("male", "female", "neutral")


@dataclass(frozen=True)
class Made(Result):
    scores: pl.DataFrame
    empty: pl.DataFrame


def made(model: str = "toy", runs: tuple[str, ...] = ("seed1", "seed2")) -> Made:
    keys = [(model, run, step, group) for run in runs for step in STEPS for group in GROUPS]
    table = pl.DataFrame(keys, schema=["model", "run", "step", "group"], orient="row")
    value = np.random.default_rng(0).random(len(table)) / 2
    table = table.with_columns(value=value, low=value - 0.1, high=value + 0.1)
    return Made(table, table.clear())


def charts(result: Made) -> dict[str, Chart]:
    table = result.scores
    axis = StepAxis(table["step"].to_list())
    lines = curves(table, axis, Measure("value", "Value"), group="group")
    indexed = axis.of(table).with_columns(checkpoint_index=pl.col("at").rank("dense") - 1)
    last = alt.param(name="checkpoint", value=len(STEPS) - 1)
    bars = (
        alt.Chart(indexed)
        .transform_filter("datum.checkpoint_index == checkpoint")
        .mark_bar()
        .encode(x="mean(value):Q", y="group:N", color=color("group", GROUPS))
        .add_params(last)
    )
    caption = "Value of each group; bands: `low` to `high`. n = 192 prompts."
    return {
        "bars": titled(bars, "Values at a checkpoint", "Means, release. n = 2 runs."),
        "lines": titled(lines, "Values during training", caption, axis=axis),
    }


def findings(result: Made) -> tuple[Finding, ...]:
    model = result.scores["model"][0]
    own: Any = {"series": (model, "seed1"), "figure": "lines", "n": "192 prompts"}
    numbers = [
        Finding(text=f"Value of {name} at step 64", value=at / 10, low=0.01, high=0.6, **own)
        for at, name in enumerate((*GROUPS, "all", "none"), start=1)
    ]
    other = Finding(text="Value of seed2", value=0.9, series=(model, "seed2"))
    lead = Finding(text="The value doubles at step 8.", figure="lines", series=own["series"])
    return lead, other, *numbers


def study(model: str = "toy", **about: Any) -> Study[Made]:
    result = made(model)
    return Study(
        result=result, findings=findings(result), missing=("3 prompts are missing.",),
        notes=("Read it as `it is`.",), cautions=("It is made up.",), title=f"Values: {model}",
        description="A value of groups.", make_charts=charts, **about,
    )  # fmt: skip
