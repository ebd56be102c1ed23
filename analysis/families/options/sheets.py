"""The figures of any prompt set: shares of its options, and accuracy."""

from collections.abc import Mapping

import polars as pl

from logitbank.analysis.drawing.names import per_run
from logitbank.analysis.drawing.paper import option_colours
from logitbank.analysis.drawing.sheet import Axis, Names, Panel, Sheet
from logitbank.analysis.drawing.steps import Curve, add_curve, training_sheet
from logitbank.analysis.families.options.metric import OptionScores

KEYS = ("model", "run")
BANDS = "95 % intervals over prompts, those of one sentence_id together"


def option_figure_data(result: OptionScores) -> dict[str, pl.DataFrame]:
    """The table behind each figure: `shares` and `accuracy`, of every model and run."""
    answered = result.answers.drop_nulls("accuracy")
    return per_run("shares", result.shares) | per_run("accuracy", answered)


def option_sheets(
    result: OptionScores, tables: Mapping[str, pl.DataFrame], names: Names
) -> dict[str, Sheet]:
    """One of each kind, from its table."""
    return {
        kind: _accuracy(table, names) if kind == "accuracy" else _shares(table, names, result)
        for kind, table in tables.items()
    }


def _shares(table: pl.DataFrame, names: Names, result: OptionScores) -> Sheet:
    shared = table["share"].is_not_null().any()
    if shared:
        label, title = "Share", "Shares of the options"
        caption = (
            "An option's probability divided by that of all options of its prompt, mean over "
            "prompts."
        )
        rows = table.with_columns(value="share")
    else:
        label, title = "Probability", "Probabilities of the options"
        caption = "Probability of an option after its prompt, mean over prompts of one option."
        if result.exp_name != "probability":
            label, title = "Exp of the score", "Scores of the options"
            caption = "Exp of an option's score, mean over prompts of one option."
        rows = table.with_columns(value="probability", low="probability", high="probability")
    parts = names.parts(rows, KEYS)
    axis = Axis(f"Mean {label.lower()}", ends=(-0.02, 1.02)) if shared else Axis(
        f"Mean {label.lower()}", from_zero=True
    )  # fmt: skip
    sheet, places = training_sheet(
        title,
        caption,
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[Panel(axis)],
        bands=BANDS,
    )
    colours = option_colours(table["option"])
    for series, part in parts:
        for of_option in part.drop_nulls("value").partition_by("option", maintain_order=True):
            option = str(of_option["option"][0])
            colour = colours[option]
            add_curve(sheet, places, Curve(series, option, colour, of_option, label))
    return sheet


def _accuracy(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table.with_columns(value="accuracy"), KEYS)
    sheet, places = training_sheet(
        "Accuracy",
        "Share of prompts whose answer has a larger share than every other option.",
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[Panel(Axis("Accuracy", ends=(-0.02, 1.02)))],
        bands=BANDS,
    )
    for series, part in parts:
        add_curve(sheet, places, Curve(series, "", sheet.colour(series), part, "Accuracy"))
    return sheet
