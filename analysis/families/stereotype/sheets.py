"""The figures of stereotype accuracy."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from logitbank.analysis.drawing.paper import COLOURS, GREEN, PURPLE
from logitbank.analysis.drawing.sheet import (
    Axis,
    Names,
    Panel,
    Sheet,
)
from logitbank.analysis.drawing.steps import Curve, add_curve, training_sheet
from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy

KEYS = ("model", "run")
SA_CAPTION = (
    "SA: share of pro-stereotyped sentences where the pronoun of the stereotype is more probable "
    "than the other. sa_gender: the same for the options male and female of the gender questions. "
    "Dashed: no stereotype."
)
SHADES = (PURPLE, GREEN, "#4c2c5a", "#00523c")


class _Group(NamedTuple):
    """Curves of one panel."""

    panel: int
    name: str
    label: str
    colours: Sequence[str]


def stereotype_sheets(
    result: StereotypeAccuracy, tables: Mapping[str, pl.DataFrame], names: Names
) -> dict[str, Sheet]:
    """One of each kind, from its table."""
    return {kind: _stereotype(table, names) for kind, table in tables.items()}


def _stereotype(table: pl.DataFrame, names: Names) -> Sheet:
    jsd = "jsd_p" in table["panel"].to_list()
    parts = names.parts(table, KEYS)
    more = (
        " JSD-P: divergence of the right answer's part, for prompts whose answer is male or "
        "female; smaller is better."
    )
    sheet, places = training_sheet(
        "Stereotype accuracy and JSD-P" if jsd else "Stereotype accuracy",
        SA_CAPTION + (more if jsd else ""),
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[
            Panel(Axis("Stereotype accuracy"), 260, rules=[("y", 0.5)]),
            *([Panel(Axis("JSD-P, scaled to 0–1", from_zero=True), 220)] if jsd else []),
        ],
        bands="95 % intervals" + (", of JSD-P ± 1 SD over orders" if jsd else ""),
    )
    groups = [
        _Group(0, "accuracy", "Stereotype accuracy", SHADES),
        _Group(1, "jsd_p", "JSD-P", COLOURS),
    ]
    for series, part in parts:
        for group in groups[: 2 if jsd else 1]:
            rows = part.filter(pl.col("panel") == group.name)
            for at, rows_of in enumerate(rows.partition_by("series", maintain_order=True)):
                colour = group.colours[at % len(group.colours)]
                within = "± 1 SD" if group.panel else "95 %"
                name = str(rows_of["series"][0])
                curve = Curve(series, name, colour, rows_of, group.label, within, panel=group.panel)
                add_curve(sheet, places, curve)
    return sheet
