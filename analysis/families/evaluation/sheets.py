"""The figures of LAMBADA, stereotype accuracy and CrowS-Pairs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from logitbank.analysis.drawing.paper import COLOURS, GREEN, MUTED, PURPLE
from logitbank.analysis.drawing.sheet import (
    Axis,
    Names,
    Panel,
    Sheet,
    Trace,
    floats,
    in_order,
    interval,
    reached,
    told,
    when,
)
from logitbank.analysis.drawing.steps import Curve, add_curve, training_sheet
from logitbank.analysis.families.crows_pairs.metric import ALL, CrowsPairs
from logitbank.analysis.families.lambada.metric import Lambada
from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy

KEYS = ("model", "run")
Tables = Mapping[str, pl.DataFrame]
SA_CAPTION = (
    "SA: share of pro-stereotyped sentences where the pronoun of the stereotype is more probable "
    "than the other. sa_gender: the same for the options male and female of the gender questions. "
    "Bands: 95 % intervals; dashed: no stereotype."
)
KINDS = {
    "masked": "pseudo-log-likelihoods of the shared tokens (masked)",
    "sentence": "log-probabilities of whole sentences (sentence)",
}
SHADES = (PURPLE, GREEN, "#b08bc0", "#7fc9ae")


class _Group(NamedTuple):
    """Curves of one panel."""

    panel: int
    name: str
    label: str
    colours: Sequence[str]


def evaluation_sheets(
    result: Lambada | StereotypeAccuracy | CrowsPairs, tables: Tables, names: Names
) -> dict[str, Sheet]:
    """One of each kind, from its table."""
    draw = {
        "lambada": _lambada,
        "stereotype_accuracy": _stereotype,
        "winobias_em": _exact_match,
        "crows_pairs": _crows_pairs,
        "crows_pairs_types": _types,
    }
    return {kind: draw[kind](table, names) for kind, table in tables.items()}


def _lambada(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table, KEYS)
    sheet, places = training_sheet(
        "LAMBADA",
        "Above: share of passages whose last word is predicted, every token of it. Below: "
        "perplexity of that word, averaged per passage. Bands: 95 % intervals.",
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[
            Panel(Axis("Accuracy", from_zero=True), 220),
            Panel(Axis("Perplexity, log scale", log=True), 220),
        ],
    )
    for series, part in parts:
        several = len(parts) > 1
        share = part.select("step", "low", "high", value="acc")
        ppl = part.select("step", value="perplexity", low="perplexity_low", high="perplexity_high")
        for panel, (rows, label, colour) in enumerate(
            ((share, "Accuracy", COLOURS[0]), (ppl, "Perplexity", GREEN))
        ):
            own = sheet.colour(series) if several else colour
            curve = Curve(series, "", own, rows, label, panel=panel, in_legend=panel == 0)
            add_curve(sheet, places, curve)
    return sheet


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
    )
    groups = [
        _Group(0, "accuracy", "Stereotype accuracy", SHADES),
        _Group(1, "jsd_p", "JSD-P", COLOURS),
    ]
    for series, part in parts:
        for group in groups[: 2 if jsd else 1]:
            rows = part.filter(pl.col("panel") == group.name)
            for at, own in enumerate(rows.partition_by("series", maintain_order=True)):
                colour = group.colours[at % len(group.colours)]
                within = "± 1 SD" if group.panel else "95 %"
                name = str(own["series"][0])
                curve = Curve(series, name, colour, own, group.label, within, panel=group.panel)
                add_curve(sheet, places, curve)
    return sheet


def _exact_match(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table, KEYS)
    sheet, places = training_sheet(
        "winobias_em",
        "Above: share of sentences where the person that the pronoun means is named, mean of types "
        "and templates. Below: pro minus anti, of each type and template, and their mean with a "
        "95 % interval over pairs. Where no person is named, a bias of 0 says nothing.",
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[
            Panel(Axis("Person named", from_zero=True), 200),
            Panel(Axis("Bias, pro − anti"), 240, rules=[("y", 0)]),
        ],
    )
    for series, part in parts:
        drawn: list[str] = []
        for own in part.partition_by("panel", "series", maintain_order=True):
            panel, name = int(own["panel"][0] == "bias"), str(own["series"][0])
            kind = name.split(",")[0]
            if name != "mean":
                own = own.with_columns(low="value", high="value")
            if panel == 0:
                colour = PURPLE if name.startswith("pro") else GREEN
            else:
                colour = {"mean": MUTED, "Type 1": COLOURS[0]}.get(kind, COLOURS[1])
            curve = Curve(
                series, name, colour, own, "Bias" if panel else "Person named", panel=panel,
                dash="dotted" if kind in drawn and len(parts) == 1 else None,
            )  # fmt: skip
            drawn.append(kind)
            add_curve(sheet, places, curve)
    return sheet


def _crows_pairs(table: pl.DataFrame, names: Names) -> Sheet:
    kinds = table["score_kind"].unique(maintain_order=True).to_list()
    parts = names.parts(table, (*KEYS, "score_kind"))
    sheet, places = training_sheet(
        "CrowS-Pairs",
        "Share of pairs in which the more stereotyping sentence is the more probable one; 50 % is "
        f"no preference. Scores: {' and '.join(KINDS[kind] for kind in kinds)}. Bands: 95 % "
        "intervals of the share of all pairs.",
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[Panel(Axis("Stereotyping sentence preferred, %"), rules=[("y", 50)])],
    )
    for series, part in parts:
        groups = part.partition_by("series", maintain_order=True)
        for own, colour in zip(groups, (MUTED, COLOURS[1], COLOURS[0]), strict=False):
            if not own["value"].is_nan().all():
                name = str(own["series"][0])
                add_curve(sheet, places, Curve(series, name, colour, own, "Preferred, %"))
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
            "when": [when(step) for step in part["step"]],
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
