"""The figures of any prompt set: shares of its options, accuracy, and training curves."""

from collections.abc import Mapping

import polars as pl

from logitbank.analysis.drawing.names import each, per_run
from logitbank.analysis.drawing.paper import PALETTE, option_colours
from logitbank.analysis.drawing.sheet import Axis, Names, Panel, Sheet
from logitbank.analysis.drawing.steps import Curve, add_curve, training_sheet
from logitbank.analysis.families.options.curves import BOUNDS, Measure
from logitbank.analysis.families.options.findings import NAMES
from logitbank.analysis.families.options.metric import OptionScores

KEYS = ("model", "run")
BANDS = "95 % intervals over prompts, those of one sentence_id together"


PANELS: dict[Measure, Axis] = {
    "entropy": Axis("Entropy, nats", from_zero=True),
    "probability": Axis("Probability of the answer", from_zero=True),
    "rank": Axis("Rank of the answer, log scale", log=True),
    "agreement": Axis("Agreement with the end", ends=(-0.02, 1.02)),
}


def option_figure_data(result: OptionScores) -> dict[str, pl.DataFrame]:
    """The table behind each figure, of every model and run.

    `shares` and `accuracy`, of each prompt set where there are several, and `curves`.
    """
    answered = result.answers.drop_nulls("accuracy")
    tables: dict[str, pl.DataFrame] = {}
    for kind, table in (("shares", result.shares), ("accuracy", answered)):
        for name, of_set in each(kind, table, "prompt_set"):
            tables |= per_run(name, of_set)
    return tables | per_run("curves", result.curves.drop_nulls("value"))


def option_sheets(
    result: OptionScores, tables: Mapping[str, pl.DataFrame], names: Names
) -> dict[str, Sheet]:
    """Those of each kind, from its table."""
    sheets = {}
    for kind, table in tables.items():
        if kind == "curves":
            sheets[kind] = _curves(table, names)
            continue
        for name, of_set in each(kind, table, "prompt_set"):
            sheets[name] = (
                _accuracy(of_set, names) if kind == "accuracy" else _shares(of_set, names, result)
            )
    return sheets


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


def _curves(table: pl.DataFrame, names: Names) -> Sheet:
    """A panel for each measure that there is; prompt sets have colours, or series of one set."""
    parts = names.parts(table, KEYS)
    measures = [measure for measure in BOUNDS if measure in table["measure"]]
    sheet, places = training_sheet(
        "Curves over training",
        f"Means over prompts: {', '.join(NAMES[measure] for measure in measures)}.",
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[Panel(PANELS[measure], 220) for measure in measures],
        bands=BANDS,
    )
    sets = table["prompt_set"].unique(maintain_order=True).to_list()
    for series, part in parts:
        named = set()  # a set without a right answer is not in every panel
        for (name, measure), rows in part.group_by("prompt_set", "measure", maintain_order=True):
            several = len(sets) > 1
            colour = PALETTE[sets.index(name) % len(PALETTE)] if several else sheet.colour(series)
            curve = Curve(
                series, name if several else "", colour, rows, NAMES[measure].capitalize(),
                panel=measures.index(measure), in_legend=name not in named,
            )  # fmt: skip
            named.add(name)
            add_curve(sheet, places, curve)
    return sheet
