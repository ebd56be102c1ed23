"""The figures of LAMBADA."""

from collections.abc import Mapping

import polars as pl

from logitbank.analysis.drawing.paper import COLOURS, GREEN
from logitbank.analysis.drawing.sheet import (
    Axis,
    Names,
    Panel,
    Sheet,
)
from logitbank.analysis.drawing.steps import Curve, add_curve, training_sheet
from logitbank.analysis.families.lambada.metric import Lambada

KEYS = ("model", "run")


def lambada_sheets(
    result: Lambada, tables: Mapping[str, pl.DataFrame], names: Names
) -> dict[str, Sheet]:
    """One of each kind, from its table."""
    draw = {"lambada": _lambada}
    return {kind: draw[kind](table, names) for kind, table in tables.items()}


def _lambada(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table, KEYS)
    sheet, places = training_sheet(
        "LAMBADA",
        "Above: share of passages whose last word is predicted, every token of it. Below: "
        "perplexity of that word, averaged per passage.",
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[
            Panel(Axis("Accuracy", from_zero=True), 220),
            Panel(Axis("Perplexity, log scale", log=True), 220),
        ],
        bands="95 % intervals",
    )
    for series, part in parts:
        several = len(parts) > 1
        share = part.select("step", "low", "high", value="acc")
        ppl = part.select("step", value="perplexity", low="perplexity_low", high="perplexity_high")
        for panel, (rows, label, colour) in enumerate(
            ((share, "Accuracy", COLOURS[0]), (ppl, "Perplexity", GREEN))
        ):
            line_colour = sheet.colour(series) if several else colour
            curve = Curve(series, "", line_colour, rows, label, panel=panel, in_legend=panel == 0)
            add_curve(sheet, places, curve)
    return sheet
