"""The figures of CrowS-Pairs."""

from collections.abc import Mapping

import polars as pl

from logitbank.analysis.drawing.paper import COLOURS, MUTED
from logitbank.analysis.drawing.sheet import (
    Axis,
    Names,
    Panel,
    Sheet,
    Trace,
    floats,
    interval,
    reached,
    told,
)
from logitbank.analysis.drawing.steps import Curve, add_curve, training_sheet
from logitbank.analysis.families.crows_pairs.metric import ALL, CrowsPairs
from logitbank.store.steps import in_order
from logitbank.wording import step_name

KEYS = ("model", "run")
KINDS = {
    "masked": "pseudo-log-likelihoods of the shared tokens (masked)",
    "sentence": "log-probabilities of whole sentences (sentence)",
}


def crows_pairs_sheets(
    result: CrowsPairs, tables: Mapping[str, pl.DataFrame], names: Names
) -> dict[str, Sheet]:
    """One of each kind, from its table."""
    draw = {"crows_pairs": _crows_pairs, "crows_pairs_types": _types}
    return {kind: draw[kind](table, names) for kind, table in tables.items()}


def _crows_pairs(table: pl.DataFrame, names: Names) -> Sheet:
    kinds = table["score_kind"].unique(maintain_order=True).to_list()
    parts = names.parts(table, (*KEYS, "score_kind"))
    sheet, places = training_sheet(
        "CrowS-Pairs",
        "Share of pairs in which the more stereotyping sentence is the more probable one; 50 % is "
        f"no preference. Scores: {' and '.join(KINDS[kind] for kind in kinds)}.",
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[Panel(Axis("Stereotyping sentence preferred, %"), rules=[("y", 50)])],
        bands="95 % intervals of the share of all pairs",
    )
    for series, part in parts:
        groups = part.partition_by("series", maintain_order=True)
        for group, colour in zip(groups, (MUTED, COLOURS[1], COLOURS[0]), strict=False):
            if not group["value"].is_nan().all():
                name = str(group["series"][0])
                add_curve(sheet, places, Curve(series, name, colour, group, "Preferred, %"))
    return sheet


def _types(table: pl.DataFrame, names: Names) -> Sheet:
    """Every bias type, a series beneath the other, checkpoint by checkpoint."""
    parts = names.parts(table, (*KEYS, "score_kind"))
    steps = in_order(table["step"].to_list())
    types = [ALL, *(name for name in table["bias_type"].unique(maintain_order=True) if name != ALL)]
    sheet = Sheet(
        "CrowS-Pairs by bias type",
        "Share of pairs of each bias type in which the more stereotyping sentence is the more "
        "probable one; 50 % is no preference. Bars: 95 % intervals.",
        "checkpoint" if len(steps) > 1 else "fixed",
        steps,
        [name for name, _ in parts],
    )
    places = {name: at for at, name in enumerate(types)}
    ends = pl.concat([table["low"], table["high"], pl.Series([50.0])])
    known = [end for end in ends if end is not None and end == end]
    called = {name: "all pairs" if name == ALL else name for name in types}
    sheet.across = Axis("Stereotyping sentence preferred, %", ends=(min(known) - 2, max(known) + 2))
    rows_axis = Axis(names=[*called.values()], turned=True, grid=False)
    sheet.panels = [Panel(rows_axis, 40 + 26 * len(types), rules=[("x", 50)])]
    for at, (series, part) in enumerate(parts):
        aside = 0.5 * (at - (len(parts) - 1) / 2) / len(parts)
        columns = {
            "x": floats(part["score"]),
            "value": floats([places[name] + aside for name in part["bias_type"]]),
            **reached(part, "low", "high", along="x"),
            "step": part["step"].to_list(),
            "when": [step_name(step) for step in part["step"]],
            "told": [
                f"{called[name]}: {told(score)} %"
                for name, score in part.select("bias_type", "score").iter_rows()
            ],
            "ends": [
                f"95 %: {interval(low, high)}, {pairs:,} pairs"
                for low, high, pairs in part.select("low", "high", "pairs").iter_rows()
            ],
        }
        sheet.traces.append(
            Trace(
                shape="points", role="point", series=series, columns=columns, slides=True,
                name=sheet.name(series), head=sheet.head(series), told=["when", "told", "ends"],
                colour=sheet.colour(series), size=9, reach=["x"],
            )
        )  # fmt: skip
    return sheet
