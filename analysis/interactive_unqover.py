"""The interactive figures of UnQover."""

from collections.abc import Mapping, Sequence

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
from logitbank.analysis.interactive_steps import Curve, Panel, add_curve, training_sheet
from logitbank.analysis.stereoset_plane import PALETTE, shortened
from logitbank.analysis.unqover import ALL, Unqover
from logitbank.analysis.unqover_data import PANELS
from logitbank.analysis.unqover_figures import GENDERS, LABELS

KEYS = ("model", "run")
PURPLE, GREEN = "#8e5ea2", "#009e73"
ROW = 19
"""Pixels of a row."""


def unqover_sheets(result: Unqover, tables: Mapping[str, pl.DataFrame]) -> dict[str, Sheet]:
    """All of them, from one table of each kind; a category has its own ranking."""
    names, sheets = Names(tables.values()), {}
    for kind, table in tables.items():
        if kind == "unqover_training":
            sheets[kind] = _training(table, names)
            continue
        for name, own in each(kind, table, "category"):
            sheets[name] = (
                _ranked(own, names, result) if kind == "ranked_subjects" else _strengths(own, names)
            )
    return sheets


def _ranked(table: pl.DataFrame, names: Names, result: Unqover) -> Sheet:
    """The subjects of the last checkpoint's ranking, in that order, at every checkpoint."""
    category, parts = table["category"][0], names.parts(table, KEYS)
    every = result.subjects.filter(pl.col("split") == ALL, pl.col("category") == category)
    found = [
        (series, part, every.join(part.select(*KEYS, "subject", row=pl.int_range(pl.len())),
                                  on=[*KEYS, "subject"], how="inner").sort("row"))
        for series, part in parts
    ]  # fmt: skip
    steps = in_order(step for _, _, rows in found for step in rows["step"])
    banded = table["low"].is_not_nan().any()
    sheet = Sheet(
        f"Subjects, {category}",
        "γ(x): C towards a subject, averaged over partners and contexts, then over attributes; "
        "above 0, it is favoured. Ordered by the last checkpoint."
        + (" Lines: 95 % bootstrap intervals over attributes." if banded else "")
        + (
            f" Of {max(table['of']):,} subjects, those at both ends of the ranking."
            if any(part["of"][0] > len(part) for _, part, _ in found)
            else ""
        ),
        "checkpoint" if len(steps) > 1 else "fixed",
        steps,
        [series for series, _, _ in found],
        one_series=True,
        height=70 + ROW * max(len(part) for _, part, _ in found),
    )
    ends = [rows[name] for _, _, rows in found for name in ("gamma", "gamma_low", "gamma_high")]
    known = [value for values in ends for value in values if value is not None and value == value]
    margin = 0.05 * (max([0.0, *known]) - min([0.0, *known])) or 0.01
    span = rounded([min([0.0, *known]) - margin, max([0.0, *known]) + margin])
    sheet.layout = _rows_layout("γ(x): mean of C towards the subject (favoured →)") | {
        "shapes": [dashed_line(0, "x")]
    }
    sheet.layout["xaxis"]["range"] = span
    for series, part, rows in found:
        for gender, colour in GENDERS.items():
            if gender in part["gender"].to_list():
                sheet.add(_key(f"{gender} names", colour), series=series, role="point")
        for own in rows.partition_by("step", maintain_order=True):
            step = own["step"][0]
            sheet.add(_subjects(sheet, own, series), series=series, role="point", **sheet.at(step))
    return sheet


def _subjects(sheet: Sheet, rows: pl.DataFrame, series: str) -> Trace:
    """Points with their intervals, a row each."""
    step = rows["step"][0]
    columns = ("rank", "gamma", "gamma_low", "gamma_high", "attribute")
    bars = reach(rows, "gamma", "gamma_low", "gamma_high")
    return {
        "type": "scatter",
        "mode": "markers",
        "name": sheet.name(series),
        "showlegend": False,
        "x": rounded(rows["gamma"]),
        "y": [plain(name) for name in rows["subject"]],
        **({"error_x": {**bars, "color": MUTED}} if bars else {}),
        "marker": {"size": 8, "color": [GENDERS.get(name, PURPLE) for name in rows["gender"]]},
        "customdata": [
            [step, rank, told(value), interval(low, high), plain(attribute)]
            for rank, value, low, high, attribute in rows.select(columns).iter_rows()
        ],
        "hovertemplate": f"<b>%{{y}}</b> · {plain(series)}<br>{when(step)}, rank %{{customdata[1]}}"
        "<br>γ: %{customdata[2]}<br>95 %: %{customdata[3]}"
        "<br>strongest: %{customdata[4]}<extra></extra>",
    }


def _strengths(table: pl.DataFrame, names: Names) -> Sheet:
    category, parts = table["category"][0], names.parts(table, KEYS)
    means = table.filter(pl.col("panel") == "mean")
    gendered = means["gender"][0] is not None
    most = max(len(part.filter(pl.col("panel") == "mean")) for _, part in parts)
    what = (
        "Diamonds: C towards the female name, averaged over pairs and contexts. Dots: γ(x, a) of "
        "every female name, and −γ(x, a) of every male one."
        if gendered
        else "Diamonds: mean over subjects of |γ(x, a)|. Dots: γ(x, a) of every subject, above 0 "
        "where it is favoured."
    )
    sheet = Sheet(
        f"Attributes, {category}",
        f"{what} The {most} attributes of greatest mean |γ(x, a)|, at the last checkpoint.",
        "fixed",
        in_order(table["step"].to_list()),
        [series for series, _ in parts],
        one_series=True,
        height=70 + ROW * max(most, 6),
    )
    title = "γ (← towards male names · towards female names →)" if gendered else "γ(x, a)"
    sheet.layout = _rows_layout(title) | {"shapes": [dashed_line(0, "x")]}
    for series, part in parts:
        own = part.filter(pl.col("panel") == "mean")
        called = _called(own["attribute"].to_list())
        diamonds = _attributes(own, called, series, "mean") | {
            "marker": {"size": 10, "symbol": "diamond", "color": GREEN},
            "zorder": 2,
        }
        sheet.add(diamonds, series=series, role="point")
        points = part.filter(pl.col("panel") == "subject")
        for dots in points.partition_by("gender", maintain_order=True):
            gender = dots["gender"][0]
            name = f"{gender} names" if gendered else "subjects"
            marker = {"size": 6, "color": GENDERS.get(gender, MUTED), "opacity": 0.6}
            trace = _attributes(dots, called, series, name) | {"marker": marker}
            sheet.add(trace, series=series, group=gender or "", role="point")
    return sheet


def _attributes(rows: pl.DataFrame, called: Mapping[str, str], series: str, name: str) -> Trace:
    step = rows["step"][0]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(name),
        "x": rounded(rows["value"]),
        "y": [plain(called[attribute]) for attribute in rows["attribute"]],
        "hovertemplate": f"<b>%{{y}}</b> · {plain(series)}<br>{when(step)}"
        f"<br>{plain(name)}: %{{x:,.4~r}}<extra></extra>",
    }


def _called(attributes: Sequence[str]) -> dict[str, str]:
    """Long names shortened, unless two of them would be the same, and so one row."""
    every = dict.fromkeys(attributes)
    short = {name: shortened(name) for name in every}
    return short if len(set(short.values())) == len(short) else {name: name for name in every}


def _training(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table, KEYS)
    banded = table["mu_low"].is_not_nan().any()
    sheet, places = training_sheet(
        "UnQover over training",
        "μ: greatest |γ(x, a)| of each subject, averaged over subjects. η: mean |η(x, a)|, how "
        "one-sided the sign of C is. Errors: how much an answer changes with the order of mention, "
        "and how far negating the attribute is from exchanging the subjects."
        + (
            " Bands: 95 % bootstrap intervals over attributes, of μ over subjects."
            if banded
            else ""
        ),
        steps=table["step"].to_list(),
        series=[series for series, _ in parts],
        panels=[Panel(LABELS[name], 150, {"rangemode": "tozero"}) for name in PANELS],
    )
    categories = table["category"].unique(maintain_order=True).to_list()
    for series, part in parts:
        for at, category in enumerate(categories):
            own = part.filter(pl.col("category") == category)
            for panel, name in enumerate(PANELS):
                rows = own.select("step", value=name, low=f"{name}_low", high=f"{name}_high")
                curve = Curve(
                    series, category, PALETTE[at % len(PALETTE)], rows, LABELS[name],
                    panel=panel, in_legend=panel == 0,
                )  # fmt: skip
                if len(rows):
                    add_curve(sheet, places, curve)
    return sheet


def _rows_layout(title: str) -> dict[str, dict[str, object]]:
    """Names at the left, in the order in which they come, from the top."""
    return {
        "xaxis": {**AXIS, "title": {"text": plain(title)}},
        "yaxis": {
            **AXIS,
            "type": "category",
            "autorange": "reversed",
            "showgrid": False,
            "dtick": 1,
            "tickfont": {"size": 11},
        },
    }


def _key(name: str, colour: str) -> Trace:
    """A line of the legend."""
    return {
        "type": "scatter", "mode": "markers", "name": plain(name), "x": [None], "y": [None],
        "marker": {"size": 8, "color": colour}, "hoverinfo": "skip",
    }  # fmt: skip
