"""The interactive figures of StereoSet."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from logitbank.analysis.figure_axes import MUTED
from logitbank.analysis.interactive_parts import (
    AXIS,
    Names,
    Sheet,
    Trace,
    dashed_line,
    each,
    in_order,
    interval,
    plain,
    reach,
    rounded,
    told,
    when,
)
from logitbank.analysis.interactive_steps import Curve, Panel, add_curve, axis_of, training_sheet
from logitbank.analysis.stereoset import StereoSet
from logitbank.analysis.stereoset_blocks import OVERALL
from logitbank.analysis.stereoset_measures import REFERENCES
from logitbank.analysis.stereoset_plane import DEFINED, LABELS, PALETTE, task_name, told_intervals
from logitbank.analysis.stereoset_scores import BOTH, CAUSAL, INTER, INTRA
from logitbank.analysis.stereoset_summary import SERIES

TASK_COLOURS = {BOTH: MUTED, INTRA: PALETTE[0], INTER: PALETTE[1], CAUSAL: PALETTE[2]}
SHORT = {"lms": "lms", "ss": "ss", "icat": "iCAT"}
HIGHEST = 101.5
IDEAL = " Dashed: a random model's 50, for ss also the ideal."


def stereoset_sheets(result: StereoSet, tables: Mapping[str, pl.DataFrame]) -> dict[str, Sheet]:
    """All of them, from one table of each kind; of what is drawn by domain, a task has its own."""
    names, sheets = Names(tables.values()), {}
    draw = {"domains": _domains, "bars": _bars, "lms_ss": _plane}
    for kind, table in tables.items():
        if kind == "icat":
            sheets[kind] = _icat(table, names)
            continue
        for name, own in each(kind, table, "task"):
            sheets[name] = draw[kind](own, names)
    return sheets


def _domains(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table, SERIES)
    measures = ("lms", "ss")
    sheet, places = training_sheet(
        f"lms and ss by domain, {task_name(table)}",
        DEFINED + told_intervals(table, "Bands, of overall") + IDEAL,
        steps=table["step"].to_list(),
        series=[series for series, _ in parts],
        panels=[Panel(LABELS[measure], 240) for measure in measures],
    )
    sheet.layout["shapes"] = [dashed_line(50, axis_of(panel)) for panel in range(2)]
    domains = _domain_order(table)
    for series, part in parts:
        for at, domain in enumerate(domains):
            rows = part.filter(pl.col("domain") == domain)
            colour = MUTED if domain == OVERALL else PALETTE[at % len(PALETTE)]
            for panel, measure in enumerate(measures):
                own = _measured(rows, measure)
                if domain != OVERALL:  # bands of all domains would hide each other
                    own = own.with_columns(low="value", high="value")
                curve = Curve(
                    series, domain, colour, own, SHORT[measure], panel=panel, in_legend=panel == 0
                )
                if len(own):
                    add_curve(sheet, places, curve)
    return sheet


def _icat(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table, SERIES)
    sheet, places = training_sheet(
        "iCAT over training",
        "iCAT = lms · min(ss, 100 − ss) / 50, over all domains."
        f"{told_intervals(table, 'Bands')} An ideal model has 100, a random one 50 (dashed), a "
        "fully stereotyped one 0.",
        steps=table["step"].to_list(),
        series=[series for series, _ in parts],
        panels=[Panel(LABELS["icat"], 330)],
    )
    sheet.layout["shapes"] = [dashed_line(50)]
    for series, part in parts:
        for task, colour in TASK_COLOURS.items():
            rows = _measured(part.filter(pl.col("task") == task), "icat")
            if len(rows):
                group = task.replace("_", " ")
                add_curve(sheet, places, Curve(series, group, colour, rows, "iCAT"))
    return sheet


def _bars(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table, SERIES)
    sheet = Sheet(
        f"StereoSet, {task_name(table)}",
        f"{DEFINED} iCAT combines the two.{told_intervals(table, 'Lines on the bars')} ss is drawn "
        "from 50 up for stereotypes, down for anti-stereotypes." + IDEAL,
        "fixed",
        in_order(table["step"].to_list()),
        [series for series, _ in parts],
        height=560,
    )
    sheet.layout = {
        "barmode": "group",
        "xaxis": {**AXIS, "type": "category", "anchor": "y3", "showgrid": False},
        "shapes": [dashed_line(50, axis_of(panel)) for panel in range(3)],
    }
    for panel, (measure, label) in enumerate(SHORT.items()):
        axis: dict[str, Any] = {"title": {"text": label}}
        if measure != "ss":
            axis["range"] = [0, 108]
        upper = 1 - 0.35 * panel
        domain = [round(max(upper - 0.3, 0), 3), round(upper, 3)]
        sheet.layout[f"yaxis{panel + 1 if panel else ''}"] = {**AXIS, **axis, "domain": domain}
    domains = {name: at for at, name in enumerate(_domain_order(table))}
    for series, part in parts:
        rows = part.sort(pl.col("domain").replace_strict(domains))
        for panel, measure in enumerate(SHORT):
            trace = _bar(sheet, rows, measure, series=series, panel=panel)
            sheet.add(trace, series=series, role="bar")
    return sheet


def _bar(sheet: Sheet, rows: pl.DataFrame, measure: str, *, series: str, panel: int) -> Trace:
    base = 50 if measure == "ss" else 0
    own = _measured(rows, measure)
    bars = reach(own, "value", "low", "high")
    return {
        "type": "bar",
        "name": sheet.name(series),
        "legendgroup": series,
        "offsetgroup": str(sheet.series.index(series)),
        "showlegend": panel == 0,
        "yaxis": axis_of(panel),
        "x": [plain(domain) for domain in rows["domain"]],
        "y": rounded(own["value"] - base),
        "base": base,
        "marker": {"color": sheet.colour(series), "opacity": 0.85},
        **({"error_y": {**bars, "color": MUTED}} if bars else {}),
        "customdata": [
            [step, told(value), interval(low, high)]
            for step, value, low, high in own.select("step", "value", "low", "high").iter_rows()
        ],
        "hovertemplate": f"{sheet.head(series)}<br>%{{x}}<br>{SHORT[measure]}: %{{customdata[1]}}"
        "<br>95 %: %{customdata[2]}<extra></extra>",
    }


def _plane(table: pl.DataFrame, names: Names) -> Sheet:
    """A point for each series, checkpoint by checkpoint, on lines of equal iCAT."""
    parts, steps = names.parts(table, SERIES), in_order(table["step"].to_list())
    trained = any(len(part) > 1 for _, part in parts)
    sheet = Sheet(
        f"lms against ss, {task_name(table)}",
        f"{DEFINED} Grey lines: equal iCAT."
        + (
            " Large points are one checkpoint, thin lines the course of training."
            if trained
            else ""
        )
        + told_intervals(table, "Bars"),
        "checkpoint" if len(steps) > 1 else "fixed",
        steps,
        [series for series, _ in parts],
        height=460,
    )
    away = max([0.0, *(abs(ss - 50) for ss in table["ss"].drop_nans())])
    side = min(max(away + 3, 14), 51.5)
    low = max(min([50.0, *table["lms"].drop_nans()]) - 4, -2)
    title = "ss, % (← anti-stereotypes preferred · stereotypes preferred →)"
    sheet.layout = {
        "xaxis": {**AXIS, "title": {"text": title}, "range": [50 - side, 50 + side]},
        "yaxis": {**AXIS, "title": {"text": plain(LABELS["lms"])}, "range": [low, 102.5]},
        **_contours(side, low),
    }
    for series, part in parts:
        colour, course = sheet.colour(series), part.drop_nulls("step").sort("step")
        if len(course) > 1:
            line = {
                "type": "scatter",
                "mode": "lines",
                "name": sheet.name(series),
                "showlegend": False,
                "legendgroup": series,
                "x": rounded(course["ss"]),
                "y": rounded(course["lms"]),
                "line": {"color": colour, "width": 1},
                "opacity": 0.6,
                "hoverinfo": "skip",
            }
            sheet.add(line, series=series, role="line")
        for own in part.partition_by("step", maintain_order=True):
            step = own["step"][0]
            point = _point(sheet, own, series, colour)
            sheet.add(point, series=series, role="point", **sheet.at(step))
    return sheet


def _point(sheet: Sheet, rows: pl.DataFrame, series: str, colour: str) -> Trace:
    row = rows.row(0, named=True)
    bars = {
        f"error_{axis}": {**ends, "color": colour}
        for axis, name in (("x", "ss"), ("y", "lms"))
        if (ends := reach(rows, name, f"{name}_low", f"{name}_high"))
    }
    lines = [
        f"{label}: {told(row[name])} ({interval(row[f'{name}_low'], row[f'{name}_high'])})"
        for name, label in SHORT.items()
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": sheet.name(series),
        "legendgroup": series,
        "x": rounded([row["ss"]]),
        "y": rounded([row["lms"]]),
        "marker": {"size": 11, "color": colour},
        **bars,
        "customdata": [[row["step"]]],
        "hovertemplate": "<br>".join([sheet.head(series), when(row["step"]), *lines])
        + "<extra></extra>",
    }


def _contours(side: float, low: float) -> dict[str, list[dict[str, object]]]:
    """Lines of equal iCAT by tens with their numbers, and the ideal and the random model."""
    shapes: list[dict[str, object]] = [dashed_line(50, "x")]
    notes: list[dict[str, object]] = []
    for level in range(10, 100, 10):
        # lms = 50 · iCAT / min(ss, 100 − ss), for as much of ss as has an lms below 100
        reach_of = min(side, 50 - level / 2)
        away = [reach_of * at / 20 for at in range(-20, 21)]
        points = [(50 + x, 50 * level / (50 - abs(x))) for x in away]
        whole = [(x, y) for x, y in points if y <= HIGHEST]  # Plotly clips it below
        inside = [(x, y) for x, y in whole if y >= low]
        if len(inside) > 1:
            path = "M" + "L".join(f"{x:.5g},{y:.5g}" for x, y in whole)
            line = {"color": "rgba(138, 143, 152, 0.6)", "width": 0.8}
            shapes.append({"type": "path", "path": path, "line": line, "layer": "below"})
            notes.append(_note(str(level), *inside[1], size=10))
    for name in ("ideal", "random"):
        lms, ss, _ = REFERENCES[name]
        if lms >= low:
            notes.append(_note("★ ideal" if name == "ideal" else "✕ random", ss, lms, size=12))
    return {"shapes": shapes, "annotations": notes}


def _note(text: str, x: float, y: float, *, size: int) -> dict[str, object]:
    return {
        "text": text, "x": x, "y": y, "showarrow": False, "font": {"size": size},
        "opacity": 0.75, "xanchor": "left" if size > 10 else "center",
    }  # fmt: skip


def _measured(rows: pl.DataFrame, measure: str) -> pl.DataFrame:
    return rows.select("step", value=measure, low=f"{measure}_low", high=f"{measure}_high")


def _domain_order(table: pl.DataFrame) -> list[str]:
    """As they come, with overall last."""
    return [*(d for d in table["domain"].unique(maintain_order=True) if d != OVERALL), OVERALL]
