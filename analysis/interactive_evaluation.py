"""The interactive figures of LAMBADA, stereotype accuracy and CrowS-Pairs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from logitbank.analysis.crows_pairs import ALL, CrowsPairs
from logitbank.analysis.evaluation_figures import GREEN, KINDS, PURPLE, SA_CAPTION
from logitbank.analysis.figure_axes import COLOURS, MUTED
from logitbank.analysis.interactive_parts import (
    AXIS,
    Names,
    Sheet,
    dashed_line,
    in_order,
    interval,
    plain,
    reach,
    rounded,
    told,
    when,
)
from logitbank.analysis.interactive_steps import Curve, Panel, add_curve, training_sheet
from logitbank.analysis.lambada import Lambada
from logitbank.analysis.stereotype_accuracy import StereotypeAccuracy

KEYS = ("model", "run")
FROM_ZERO = {"rangemode": "tozero"}
Tables = Mapping[str, pl.DataFrame]
SHADES = (PURPLE, GREEN, "#b08bc0", "#7fc9ae")


class _Group(NamedTuple):
    """Curves of one panel."""

    panel: int
    name: str
    label: str
    colours: Sequence[str]


def evaluation_sheets(
    result: Lambada | StereotypeAccuracy | CrowsPairs, tables: Tables
) -> dict[str, Sheet]:
    """All of them, from one table of each kind."""
    names = Names(tables.values())
    draw = {
        "lambada": _lambada,
        "stereotype_accuracy": _stereotype,
        "winobias_em": _exact_match,
        "crows_pairs": _crows_pairs,
    }
    sheets = {kind: draw[kind](table, names) for kind, table in tables.items()}
    if isinstance(result, CrowsPairs) and "crows_pairs" in tables:
        sheets["crows_pairs_types"] = _types(result.crows_pairs, names)
    return sheets


def _lambada(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table, KEYS)
    sheet, places = training_sheet(
        "LAMBADA",
        "Above: share of passages whose last word is predicted, every token of it. Below: "
        "perplexity of that word, averaged per passage. Bands: 95 % intervals.",
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[
            Panel("Accuracy", 220, FROM_ZERO),
            Panel("Perplexity, log scale", 220, {"type": "log"}),
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
            Panel("Stereotype accuracy", 260),
            *([Panel("JSD-P, scaled to 0–1", 220, FROM_ZERO)] if jsd else []),
        ],
    )
    sheet.layout["shapes"] = [dashed_line(0.5)]
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
    zero = {"zeroline": True, "zerolinecolor": MUTED, "zerolinewidth": 1}
    sheet, places = training_sheet(
        "winobias_em",
        "Above: share of sentences where the person that the pronoun means is named, mean of types "
        "and templates. Below: pro minus anti, of each type and template, and their mean with a "
        "95 % interval over pairs. Where no person is named, a bias of 0 says nothing.",
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[Panel("Person named", 200, FROM_ZERO), Panel("Bias, pro − anti", 240, zero)],
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
                dash="dot" if kind in drawn and len(parts) == 1 else None,
            )  # fmt: skip
            drawn.append(kind)
            add_curve(sheet, places, curve)
    return sheet


def _crows_pairs(table: pl.DataFrame, names: Names) -> Sheet:
    curves = table.filter(pl.col("panel") == "curve")
    kinds = curves["score_kind"].unique(maintain_order=True).to_list()
    parts = names.parts(curves, (*KEYS, "score_kind"))
    sheet, places = training_sheet(
        "CrowS-Pairs",
        "Share of pairs in which the more stereotyping sentence is the more probable one; 50 % is "
        f"no preference. Scores: {' and '.join(KINDS[kind] for kind in kinds)}. Bands: 95 % "
        "intervals of the share of all pairs.",
        steps=curves["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[Panel("Stereotyping sentence preferred, %")],
    )
    sheet.layout["shapes"] = [dashed_line(50)]
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
        height=90 + 26 * len(types),
    )
    places = {name: at for at, name in enumerate(types)}
    ends = pl.concat([table["low"], table["high"], pl.Series([50.0])])
    known = [end for end in ends if end is not None and end == end]
    ticks = ["all pairs", *map(plain, types[1:])]
    sheet.layout = {
        "xaxis": {**AXIS, "title": {"text": "Stereotyping sentence preferred, %"},
                  "range": [min(known) - 2, max(known) + 2]},
        "yaxis": {**AXIS, "showgrid": False, "tickmode": "array", "tickvals": [*places.values()],
                  "ticktext": ticks, "range": [len(types) - 0.4, -0.6]},
        "shapes": [dashed_line(50, "x")],
    }  # fmt: skip
    for at, (series, part) in enumerate(parts):
        aside = 0.5 * (at - (len(parts) - 1) / 2) / len(parts)
        for own in part.partition_by("step", maintain_order=True):
            ends_told = [interval(low, high) for low, high in own.select("low", "high").iter_rows()]
            step = own["step"][0]
            told_rows = zip(own["bias_type"], own["score"], ends_told, own["pairs"], strict=True)
            points = {
                "type": "scatter",
                "mode": "markers",
                "name": sheet.name(series),
                "x": rounded(own["score"]),
                "y": rounded([places[name] + aside for name in own["bias_type"]]),
                "error_x": reach(own, "score", "low", "high"),
                "customdata": [
                    [step, "all pairs" if name == ALL else plain(name), told(score), ends, pairs]
                    for name, score, ends, pairs in told_rows
                ],
                "marker": {"size": 9, "color": sheet.colour(series)},
                "hovertemplate": f"{sheet.head(series)}<br>{when(step)}<br>%{{customdata[1]}}: "
                "%{customdata[2]} %<br>95 %: %{customdata[3]}<br>%{customdata[4]:,} pairs"
                "<extra></extra>",
            }
            sheet.add(points, series=series, role="point", **sheet.at(step))
    return sheet
