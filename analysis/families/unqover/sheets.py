"""The figures of UnQover."""

from collections.abc import Mapping, Sequence

import polars as pl

from logitbank.analysis.drawing.names import each
from logitbank.analysis.drawing.paper import COLOURS, GREEN, MUTED, PALETTE, PURPLE, shortened
from logitbank.analysis.drawing.sheet import (
    Axis,
    Columns,
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
from logitbank.analysis.families.unqover.figure_data import PANELS
from logitbank.analysis.families.unqover.metric import ALL, Unqover
from logitbank.store.steps import in_order
from logitbank.wording import step_name

KEYS = ("model", "run")
GENDERS = {"male": COLOURS[0], "female": COLOURS[1]}
LABELS = {
    "mu": "Bias intensity μ",
    "eta": "Bias by count η",
    "positional": "Positional error",
    "attributive": "Attributive error",
}
ROW = 19
"""Pixels of a row."""


def unqover_sheets(
    result: Unqover, tables: Mapping[str, pl.DataFrame], names: Names
) -> dict[str, Sheet]:
    """One of each kind, from its table; a category has its own ranking."""
    sheets = {}
    for kind, table in tables.items():
        if kind == "unqover_training":
            sheets[kind] = _training(table, names)
            continue
        for name, rows in each(kind, table, "category"):
            sheets[name] = (
                _ranked(rows, names, result)
                if kind == "ranked_subjects"
                else _strengths(rows, names)
            )
    return sheets


def _ranked(table: pl.DataFrame, names: Names, result: Unqover) -> Sheet:
    """The subjects of the last checkpoint's ranking, in that order, at every checkpoint."""
    category, parts = table["category"][0], names.parts(table, KEYS)
    every = result.subjects.filter(pl.col("split") == ALL, pl.col("category") == category)
    order = _order(table, "subject")
    steps = in_order(every["step"].to_list())
    banded = table["low"].is_not_nan().any()
    first = f" of {parts[0][0]}, then of the others" if len(parts) > 1 else ""
    sheet = Sheet(
        f"Subjects, {category}",
        "γ(x): C towards a subject, averaged over partners and contexts, then over attributes; "
        f"above 0, it is favoured. In the order of the last checkpoint{first}."
        + (" Lines: 95 % bootstrap intervals over attributes." if banded else "")
        + (
            f" Of {max(table['of']):,} subjects, those at both ends of the ranking."
            if any(part["of"][0] > len(part) for _, part in parts)
            else ""
        ),
        "checkpoint" if len(steps) > 1 else "fixed",
        steps,
        [series for series, _ in parts],
        one_series=True,
    )
    shown = every.filter(pl.col("subject").is_in(list(order)))
    values = pl.concat([shown[name] for name in ("gamma", "gamma_low", "gamma_high")])
    known = [0.0, *values.drop_nulls().drop_nans()]
    margin = 0.05 * (max(known) - min(known)) or 0.01
    title = "γ(x): mean of C towards the subject (favoured →)"
    sheet.across = Axis(title, ends=(min(known) - margin, max(known) + margin))
    sheet.panels = [_rows_panel([shortened(name) for name in order])]
    for series, part in parts:
        of_series = shown.join(part.select(*KEYS).unique(), on=KEYS, how="semi")
        genders = dict(part.select("subject", "gender").iter_rows())
        for gender, colour in (*GENDERS.items(), ("", PURPLE)):
            names_of = [name for name in order if (genders.get(name) or "") == gender]
            rows = of_series.filter(pl.col("subject").is_in(names_of))
            if len(rows):
                sheet.traces.append(
                    Trace(
                        shape="points", role="point", series=series, columns=_subjects(rows, order),
                        name=f"{gender} names" if gender else "", head=sheet.head(series),
                        told=["what", "when", "told", "ends", "strongest"], colour=colour, size=8,
                        reach=["x"], slides=True,
                    )
                )  # fmt: skip
    return sheet


def _subjects(rows: pl.DataFrame, order: Mapping[str, int]) -> Columns:
    """Points with their intervals, a row each."""
    told_of = ("gamma", "gamma_low", "gamma_high", "rank")
    return {
        "x": floats(rows["gamma"]),
        "value": floats([order[name] for name in rows["subject"]]),
        **reached(rows, "gamma_low", "gamma_high", along="x"),
        "step": rows["step"].to_list(),
        "what": rows["subject"].to_list(),
        "when": [
            f"{step_name(step)}, rank {rank}"
            for step, rank in rows.select("step", "rank").iter_rows()
        ],
        "told": [f"γ: {told(value)}" for value in rows["gamma"]],
        "ends": [f"95 %: {interval(low, high)}" for _, low, high, _ in rows.select(told_of).rows()],
        "strongest": [f"strongest: {attribute}" for attribute in rows["attribute"]],
    }


def _strengths(table: pl.DataFrame, names: Names) -> Sheet:
    category, parts = table["category"][0], names.parts(table, KEYS)
    means = table.filter(pl.col("panel") == "mean")
    gendered = means["gender"][0] is not None
    order = _order(means, "attribute")
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
    )
    called = _called(list(order))
    title = "γ (← male names · female names →)" if gendered else "γ(x, a)"
    sheet.across = Axis(title)
    sheet.panels = [_rows_panel([called[name] for name in order])]
    for series, part in parts:
        points = part.filter(pl.col("panel") == "subject")
        for dots in points.partition_by("gender", maintain_order=True):
            gender = dots["gender"][0]
            name = f"{gender} names" if gendered else "subjects"
            sheet.traces.append(
                Trace(
                    shape="points", role="point", series=series, group=gender or "", name=name,
                    columns=_attributes(dots, order, name), head=sheet.head(series),
                    told=["what", "when", "told"], colour=GENDERS.get(gender, MUTED), size=6,
                    alpha=0.6,
                )
            )  # fmt: skip
        averages = part.filter(pl.col("panel") == "mean")
        sheet.traces.append(
            Trace(
                shape="points", role="point", series=series, name="mean", head=sheet.head(series),
                columns=_attributes(averages, order, "mean"), told=["what", "when", "told"],
                colour=GREEN, size=11, symbol="diamond",
            )
        )  # fmt: skip
    return sheet


def _attributes(rows: pl.DataFrame, order: Mapping[str, int], name: str) -> Columns:
    return {
        "x": floats(rows["value"]),
        "value": floats([order[attribute] for attribute in rows["attribute"]]),
        "what": rows["attribute"].to_list(),
        "when": [step_name(step) for step in rows["step"]],
        "told": [f"{name}: {told(value)}" for value in rows["value"]],
    }


def _order(table: pl.DataFrame, column: str) -> dict[str, int]:
    """The row of each name: in the order of the first series, then of what only others have."""
    return {name: at for at, name in enumerate(table[column].unique(maintain_order=True))}


def _called(attributes: Sequence[str]) -> dict[str, str]:
    """Long names shortened, unless two of them would be the same, and so one row."""
    every = dict.fromkeys(attributes)
    short = {name: shortened(name) for name in every}
    return short if len(set(short.values())) == len(short) else {name: name for name in every}


def _training(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table, KEYS)
    sheet, places = training_sheet(
        "UnQover over training",
        "μ: greatest |γ(x, a)| of each subject, averaged over subjects. η: mean |η(x, a)|, how "
        "one-sided the sign of C is. Errors: how much an answer changes with the order of mention, "
        "and how far negating the attribute is from exchanging the subjects.",
        steps=table["step"].to_list(),
        series=[series for series, _ in parts],
        panels=[Panel(Axis(LABELS[name], from_zero=True), 150) for name in PANELS],
        bands="95 % bootstrap intervals over attributes, of μ over subjects",
    )
    categories = table["category"].unique(maintain_order=True).to_list()
    for series, part in parts:
        for at, category in enumerate(categories):
            of_category = part.filter(pl.col("category") == category)
            for panel, name in enumerate(PANELS):
                rows = of_category.select(
                    "step", value=name, low=f"{name}_low", high=f"{name}_high"
                )
                curve = Curve(
                    series, category, PALETTE[at % len(PALETTE)], rows, LABELS[name],
                    panel=panel, in_legend=panel == 0,
                )  # fmt: skip
                if len(rows):
                    add_curve(sheet, places, curve)
    return sheet


def _rows_panel(names: Sequence[str]) -> Panel:
    """Names at the left, in the order in which they come, from the top."""
    axis = Axis(names=names, turned=True, grid=False)
    return Panel(axis, 24 + ROW * max(len(names), 6), rules=[("x", 0)])
