"""The figures of StereoSet."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from logitbank.analysis.drawing.names import each
from logitbank.analysis.drawing.paper import MUTED, PALETTE
from logitbank.analysis.drawing.sheet import (
    Axis,
    Names,
    Note,
    Panel,
    Sheet,
    Trace,
    floats,
    interval,
    reached,
    told,
)
from logitbank.analysis.drawing.steps import Curve, add_curve, training_sheet
from logitbank.analysis.families.stereoset.blocks import OVERALL
from logitbank.analysis.families.stereoset.measures import REFERENCES
from logitbank.analysis.families.stereoset.metric import StereoSet
from logitbank.analysis.families.stereoset.scores import BOTH, CAUSAL, INTER, INTRA
from logitbank.analysis.families.stereoset.summary import SERIES
from logitbank.store.steps import in_order
from logitbank.wording import step_name

TASK_COLOURS = {BOTH: MUTED, INTRA: PALETTE[0], INTER: PALETTE[1], CAUSAL: PALETTE[2]}
SHORT = {"lms": "lms", "ss": "ss", "icat": "iCAT"}
LABELS = {
    "lms": "lms: meaningful preferred, %",
    "ss": "ss: stereotype preferred, %",
    "icat": "iCAT",
}
DEFINED = (
    "lms: how often a meaningful candidate beats the unrelated one; ss: how often the stereotype "
    "beats the anti-stereotype, of which 50 is no preference. Means over target terms."
)
HIGHEST = 101.5
IDEAL = " Dashed: a random model's 50, for ss also the ideal."


def stereoset_sheets(
    result: StereoSet, tables: Mapping[str, pl.DataFrame], names: Names
) -> dict[str, Sheet]:
    """One of each kind, from its table; of what is drawn by domain, a task has its own."""
    sheets = {}
    draw = {"domains": _domains, "bars": _bars, "lms_ss": _plane}
    for kind, table in tables.items():
        if kind == "icat":
            sheets[kind] = _icat(table, names)
            continue
        for name, rows in each(kind, table, "task"):
            sheets[name] = draw[kind](rows, names)
    return sheets


def _domains(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table, SERIES)
    measures = ("lms", "ss")
    sheet, places = training_sheet(
        f"lms and ss by domain, {_task_name(table)}",
        DEFINED + _told_intervals(table, "Bands, of overall") + IDEAL,
        steps=table["step"].to_list(),
        series=[series for series, _ in parts],
        panels=[Panel(Axis(LABELS[measure]), 240, rules=[("y", 50)]) for measure in measures],
    )
    domains = _domain_order(table)
    for series, part in parts:
        for at, domain in enumerate(domains):
            rows = part.filter(pl.col("domain") == domain)
            colour = MUTED if domain == OVERALL else PALETTE[at % len(PALETTE)]
            for panel, measure in enumerate(measures):
                values = _measured(rows, measure)
                if domain != OVERALL:  # bands of all domains would hide each other
                    values = values.with_columns(low="value", high="value")
                curve = Curve(
                    series,
                    domain,
                    colour,
                    values,
                    SHORT[measure],
                    panel=panel,
                    in_legend=panel == 0,
                )
                if len(values):
                    add_curve(sheet, places, curve)
    return sheet


def _icat(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table, SERIES)
    sheet, places = training_sheet(
        "iCAT over training",
        "iCAT = lms · min(ss, 100 − ss) / 50, over all domains."
        f"{_told_intervals(table, 'Bands')} An ideal model has 100, a random one 50 (dashed), a "
        "fully stereotyped one 0.",
        steps=table["step"].to_list(),
        series=[series for series, _ in parts],
        panels=[Panel(Axis(LABELS["icat"]), 330, rules=[("y", 50)])],
    )
    for series, part in parts:
        for task, colour in TASK_COLOURS.items():
            rows = _measured(part.filter(pl.col("task") == task), "icat")
            if len(rows):
                group = task.replace("_", " ")
                add_curve(sheet, places, Curve(series, group, colour, rows, "iCAT"))
    return sheet


def _bars(table: pl.DataFrame, names: Names) -> Sheet:
    parts, domains = names.parts(table, SERIES), _domain_order(table)
    sheet = Sheet(
        f"StereoSet, {_task_name(table)}",
        f"{DEFINED} iCAT combines the two.{_told_intervals(table, 'Lines on the bars')} ss is "
        "drawn from 50 up for stereotypes, down for anti-stereotypes." + IDEAL,
        "fixed",
        in_order(table["step"].to_list()),
        [series for series, _ in parts],
        across=Axis(names=domains, grid=False),
    )
    sheet.panels = [
        Panel(Axis(label, ends=None if measure == "ss" else (0, 108)), 170, rules=[("y", 50)])
        for measure, label in SHORT.items()
    ]
    place = {name: at for at, name in enumerate(domains)}
    for at, (series, part) in enumerate(parts):
        wide = 0.8 / len(parts)
        aside = wide * (at - (len(parts) - 1) / 2)
        where = floats([place[name] + aside for name in part["domain"]])
        for panel, (measure, label) in enumerate(SHORT.items()):
            values = _measured(part, measure)
            columns = {
                "x": where,
                "value": floats(values["value"]),
                "base": np.full(len(values), 50.0 if measure == "ss" else 0.0),
                **reached(values, "low", "high", along="y"),
                "what": part["domain"].to_list(),
                "told": [f"{label}: {told(value)}" for value in values["value"]],
                "ends": [
                    f"95 %: {interval(*ends)}" for ends in values.select("low", "high").rows()
                ],
                "number": ["" if value is None else f"{value:.1f}" for value in values["value"]],
            }
            sheet.traces.append(
                Trace(
                    shape="bars", role="bar", series=series, columns=columns, panel=panel,
                    name=sheet.name(series), head=sheet.head(series), width=0.94 * wide,
                    told=["what", "told", "ends"], colour=sheet.colour(series),
                    reach=["y"], written="number",
                )
            )  # fmt: skip
    return sheet


def _plane(table: pl.DataFrame, names: Names) -> Sheet:
    """A point for each series, checkpoint by checkpoint, on lines of equal iCAT."""
    parts, steps = names.parts(table, SERIES), in_order(table["step"].to_list())
    trained = any(len(part) > 1 for _, part in parts)
    sheet = Sheet(
        f"lms against ss, {_task_name(table)}",
        f"{DEFINED} Grey lines: equal iCAT."
        + (
            " Large points are one checkpoint, thin lines the course of training."
            if trained
            else ""
        )
        + _told_intervals(table, "Bars"),
        "checkpoint" if len(steps) > 1 else "fixed",
        steps,
        [series for series, _ in parts],
    )
    away = max([0.0, *(abs(ss - 50) for ss in table["ss"].drop_nans())])
    side = min(max(away + 3, 14), 51.5)
    low = max(min([50.0, *table["lms"].drop_nans()]) - 4, -2)
    title = "ss, % (← anti-stereotypes · stereotypes →)"
    sheet.across = Axis(title, ends=(50 - side, 50 + side))
    sheet.panels = [_plane_panel(side, low)]
    for series, part in parts:
        common: dict[str, Any] = {"series": series, "colour": sheet.colour(series)}
        course = part.drop_nulls("step").sort("step")
        if len(course) > 1:
            ends = [step_name(step) if at in (0, len(course) - 1) else ""
                    for at, step in enumerate(course["step"])]  # fmt: skip
            line = {"x": floats(course["ss"]), "value": floats(course["lms"]), "ends": ends}
            sheet.traces.append(
                Trace(
                    shape="curve", role="line", columns=line, width=1, size=4,
                    written="ends", **common,
                )
            )  # fmt: skip
        columns = {
            "x": floats(part["ss"]),
            "value": floats(part["lms"]),
            **reached(part, "ss_low", "ss_high", along="x"),
            **reached(part, "lms_low", "lms_high", along="y"),
            "step": part["step"].to_list(),
            "when": [step_name(step) for step in part["step"]],
        }
        for name, label in SHORT.items():
            rows = part.select(name, f"{name}_low", f"{name}_high").iter_rows()
            columns[name] = [f"{label}: {told(v)} ({interval(*ends)})" for v, *ends in rows]
        sheet.traces.append(
            Trace(
                shape="points", role="point", columns=columns, size=12, slides=True,
                name=sheet.name(series), head=sheet.head(series), told=["when", *SHORT],
                reach=["x", "y"], **common,
            )
        )  # fmt: skip
    return sheet


def _plane_panel(side: float, low: float) -> Panel:
    """Lines of equal iCAT by tens with their numbers, and the ideal and the random model."""
    notes, paths = [], []
    for level in range(10, 100, 10):
        # lms = 50 · iCAT / min(ss, 100 − ss), for as much of ss as has an lms below 100
        reach_of = min(side, 50 - level / 2)
        away = [reach_of * at / 20 for at in range(-20, 21)]
        points = [(50 + x, 50 * level / (50 - abs(x))) for x in away]
        whole = [(x, y) for x, y in points if y <= HIGHEST]  # what is too low is cut off
        inside = [(x, y) for x, y in whole if y >= low]
        if len(inside) > 1:
            paths.append(whole)
            x, y = inside[1]
            notes.append(Note(str(level), y, x, size=10, above=True))
    for name in ("ideal", "random"):
        lms, ss, _ = REFERENCES[name]
        if lms >= low:
            notes.append(Note("★ ideal" if name == "ideal" else "✕ random", lms, ss, size=12))
    axis = Axis(LABELS["lms"], ends=(low, 102.5))
    return Panel(axis, 420, rules=[("x", 50)], notes=notes, paths=paths)


def _told_intervals(table: pl.DataFrame, what: str) -> str:
    """A sentence of a caption about the intervals that are drawn; nothing where there are none."""
    drawn = table["ss_low"].is_not_nan().any()
    return f" {what}: 95 % bootstrap intervals over target terms." if drawn else ""


def _task_name(table: pl.DataFrame) -> str:
    """The task of a table, for people."""
    task = str(table["task"][0])
    return "both tasks" if task == BOTH else task.replace("_", " ")


def _measured(rows: pl.DataFrame, measure: str) -> pl.DataFrame:
    return rows.select("step", value=measure, low=f"{measure}_low", high=f"{measure}_high")


def _domain_order(table: pl.DataFrame) -> list[str]:
    """As they come, with overall last."""
    return [*(d for d in table["domain"].unique(maintain_order=True) if d != OVERALL), OVERALL]
