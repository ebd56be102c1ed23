"""The charts of any prompt set: accuracy, option probabilities, and curves of the measures."""

import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import curves, stacked, with_series
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import colors_of
from logitbank.analysis.families.options.findings import figure_name
from logitbank.analysis.families.options.metric import OptionScores
from logitbank.wording import counted

BANDS = "Bands: 95% confidence intervals over prompts, clustered by sentence_id."
PANELS = {
    "probability": "P(correct answer)",
    "rank": "Rank (log scale)",
    "entropy": "Entropy (nats)",
    "top1_agreement": "Top-1 agreement",
}
CAPTIONS = {
    "probability": "probability of the correct answer",
    "rank": "mean rank of the correct answer in the vocabulary",
    "entropy": "entropy over the vocabulary",
    "top1_agreement": (
        "share of positions whose most probable token is that of the last checkpoint"
    ),
}
LENGTH = 24
"""Characters of an option in a legend."""


def charts(result: OptionScores) -> dict[str, Chart]:
    """`accuracy` and `option_probability` of each prompt set, and `curves` of all."""
    found: dict[str, Chart] = {}
    several = result.checkpoints["prompt_set"].n_unique() > 1
    for kind, table in (("accuracy", result.answers), ("option_probability", result.shares)):
        for part in table.drop_nulls(kind).partition_by("prompt_set", maintain_order=True):
            name = figure_name(kind, part["prompt_set"][0], several)
            found[name] = _accuracy(part) if kind == "accuracy" else _options(part)
    if len(table := result.curves.drop_nulls("value")):
        found["curves"] = _curves(table)
    return found


def _sample(table: pl.DataFrame) -> str:
    return f"n = {counted(int(table['prompts'].max() or 0), 'prompt')}"  # type: ignore[arg-type]


def _accuracy(table: pl.DataFrame) -> Chart:
    axis = StepAxis(table["step"].to_list())
    chart = curves(
        table, axis, y="accuracy", title="Accuracy", zero=True, tooltip={"Prompts": "prompts"}
    )
    caption = (
        "Share of prompts whose correct answer is more probable than every other option. "
        f"{BANDS} {_sample(table)}."
    )
    return titled(chart, "Accuracy", caption, axis=axis)


def _options(table: pl.DataFrame) -> Chart:
    axis = StepAxis(table["step"].to_list())
    label = pl.col("option").str.strip_chars()
    short = pl.when(label.str.len_chars() > LENGTH).then(label.str.head(LENGTH - 1) + "…")
    chart = curves(
        table.with_columns(option=short.otherwise(label)), axis, y="option_probability",
        title="Option probability", group="option", zero=True, tooltip={"Prompts": "prompts"},
    )  # fmt: skip
    caption = (
        "Probability of each option, normalized over the options of a prompt: mean over prompts. "
        f"{BANDS} {_sample(table)}."
    )
    return titled(chart, "Option probabilities", caption, axis=axis)


def _curves(table: pl.DataFrame) -> Chart:
    axis = StepAxis(table["step"].to_list())
    table = with_series(table, "prompt_set")
    measures = [measure for measure in PANELS if measure in table["measure"]]
    # The legend is above the measure that most series have.
    most = max(measures, key=lambda name: table.filter(measure=name)["series"].n_unique())
    measures.sort(key=lambda name: name != most)
    last, colors = measures[-1], colors_of(table["series"])
    panels = [
        curves(
            table.filter(measure=measure), axis, y="value", title=PANELS[measure],
            log=measure == "rank", zero=measure in ("probability", "top1_agreement"),
            tooltip={"Prompts": "prompts"}, height=110, colors=colors, legend=measure == most,
            x_title="Training step" if measure == last else None, x_labels=measure == last,
        )
        for measure in measures
    ]  # fmt: skip
    names = "; ".join(CAPTIONS[measure] for measure in measures)
    caption = f"Means over prompts, from above: {names}. {BANDS} {_sample(table)}."
    return titled(stacked(*panels), "Curves over training", caption, axis=axis)
