"""The charts of any prompt set: accuracy, option probabilities, and curves of the measures."""

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, sample_size, titled
from logitbank.analysis.charts.curves import (
    SERIES,
    change_caption,
    change_points,
    curves,
    interval_caption,
    stacked,
    with_series,
)
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import color_map
from logitbank.analysis.families.options.metric import OptionScores
from logitbank.analysis.results.series import figure_name

MEASURES = {
    "probability": (
        Measure("value", "P(correct answer)", scale="share"),
        "probability of the correct answer in the whole vocabulary",
    ),
    "rank": (
        Measure("value", "Rank (log scale)", scale="log"),
        "mean rank of the correct answer in the vocabulary",
    ),
    "entropy": (Measure("value", "Entropy (nats)"), "entropy over the vocabulary"),
    "top1_agreement": (
        Measure("value", "Top-1 agreement", scale="share"),
        "share of positions whose most probable token is that of the last checkpoint",
    ),
}  # fmt: skip
"""The measures of `curves`, and what each is."""
LENGTH = 24
"""Characters of an option in a legend."""


def charts(result: OptionScores) -> dict[str, Chart]:
    """`accuracy`, `option_probability` and `curves` of each prompt set."""
    found = {**_groups(result.groups)}
    several = result.checkpoints["prompt_set"].n_unique() > 1
    for kind, table in (("accuracy", result.answers), ("option_probability", result.shares)):
        for part in table.drop_nulls(kind).partition_by("prompt_set", maintain_order=True):
            name = figure_name(kind, part["prompt_set"][0], several)
            bands = _bands(part, result)
            if kind == "accuracy":
                changes = result.change_points.filter(prompt_set=part["prompt_set"][0])
                found[name] = _accuracy(part, changes, bands)
            else:
                found[name] = _options(part, bands)
    for part in result.curves.drop_nulls("value").partition_by("prompt_set", maintain_order=True):
        found[figure_name("curves", part["prompt_set"][0], several)] = _curves(
            part, _bands(part, result)
        )
    return found


def _groups(table: pl.DataFrame) -> dict[str, Chart]:
    """`groups` of each prompt set: the value of each group above their differences."""
    found: dict[str, Chart] = {}
    for part in table.partition_by("prompt_set", maintain_order=True):
        score = "accuracy" if "accuracy" in part["score"] else "option_probability"
        part = part.filter(pl.col("value").is_not_nan(), score=score)
        option = part.sort("value", descending=True)["option"][0]
        part = part.filter(option=option)
        axis = StepAxis(part["step"].to_list())
        title = "Accuracy" if score == "accuracy" else f"P({option.strip()})"
        values = part.filter(minus="")
        label = pl.format("{} − {}", "group", "minus")
        differences = part.filter(pl.col("minus") != "").with_columns(difference=label)
        panels = [
            curves(values, axis, Measure("value", title, scale="share"), group="group",
                   tooltip={"Prompts": "prompts"}),
            curves(differences, axis, Measure("value", "Difference"), group="difference",
                   tooltip={"Prompts": "prompts"}),
        ]  # fmt: skip
        caption = (
            f"{title} by group, and difference of groups below. {interval_caption(values)} "
            f"{sample_size(values['prompts'], 'prompt')} of a group."
        )
        name = figure_name("groups", part["prompt_set"][0], table["prompt_set"].n_unique() > 1)
        found[name] = titled(stacked(*panels), f"{title} by group", caption, axis=axis)
    return found


def _bands(table: pl.DataFrame, result: OptionScores) -> str:
    clusters = ", clustered by sentence_id" * (table["prompt_set"][0] in result.clustered)
    over = f"over prompts{clusters}"
    return interval_caption(table, f"95% confidence intervals {over}") or f"Means {over}."


def _accuracy(table: pl.DataFrame, changes: pl.DataFrame, bands: str) -> Chart:
    axis = StepAxis(table["step"].to_list())
    accuracy = Measure("accuracy", "Accuracy", scale="share")
    plot = curves(table, axis, accuracy, tooltip={"Prompts": "prompts"})
    chart = alt.layer(*change_points(changes, axis), plot)
    dashed = change_caption(changes)
    bands += f" Dashed: {dashed}." if dashed else ""
    caption = (
        "Share of prompts whose correct answer is more probable than every other option. "
        f"{bands} {sample_size(table['prompts'], 'prompt')}."
    )
    return titled(chart, "Accuracy", caption, axis=axis)


def _options(table: pl.DataFrame, bands: str) -> Chart:
    axis = StepAxis(table["step"].to_list())
    label = pl.col("option").str.strip_chars()
    short = pl.when(label.str.len_chars() > LENGTH).then(label.str.head(LENGTH - 1) + "…")
    table = table.with_columns(option=short.otherwise(label))
    probability = Measure("option_probability", "Option probability", scale="share")
    chart = curves(table, axis, probability, group="option", tooltip={"Prompts": "prompts"})
    caption = (
        "Probability of each option, normalized over the options of a prompt: mean over prompts. "
        f"{bands} {sample_size(table['prompts'], 'prompt')}."
    )
    return titled(chart, "Option probabilities", caption, axis=axis)


def _curves(table: pl.DataFrame, bands: str) -> Chart:
    axis = StepAxis(table["step"].to_list())
    table = with_series(table)
    parts = {name: table.filter(measure=name) for name in MEASURES if name in table["measure"]}
    # The first plot has the legend, so it is that of the measure that most series have.
    most = max(parts, key=lambda name: parts[name][SERIES].n_unique())
    names = sorted(parts, key=lambda name: name != most)
    colors, tooltip = color_map(table[SERIES]), {"Prompts": "prompts"}
    panels = [
        curves(parts[name], axis, MEASURES[name][0], colors=colors, tooltip=tooltip)
        for name in names
    ]
    texts = "; ".join(MEASURES[name][1] for name in names)
    caption = (
        f"Means over prompts, from above: {texts}. {bands} "
        f"{sample_size(table['prompts'], 'prompt')}."
    )
    return titled(stacked(*panels), "Curves over training", caption, axis=axis)
