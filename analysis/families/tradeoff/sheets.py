"""The figures of a trade-off."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from logitbank.analysis.drawing.paper import COLOURS, MUTED, PALETTE, PURPLE, short
from logitbank.analysis.drawing.places import StepPlaces
from logitbank.analysis.drawing.sheet import (
    Axis,
    Columns,
    Names,
    Panel,
    Sheet,
    Trace,
    floats,
    reached,
    told,
)
from logitbank.analysis.drawing.steps import Curve, add_curve, training_sheet
from logitbank.analysis.families.tradeoff.metric import TradeOff
from logitbank.store.steps import Step, in_order
from logitbank.wording import step_name

KEYS = ("model", "run")
CHOSEN = PALETTE[4]


def tradeoff_sheets(
    result: TradeOff, tables: Mapping[str, pl.DataFrame], names: Names
) -> dict[str, Sheet]:
    """One of each kind, from its table."""
    draw = {"tradeoff_curves": _curves, "tradeoff_front": _front}
    return {kind: draw[kind](table, names, result) for kind, table in tables.items()}


def _curves(table: pl.DataFrame, names: Names, result: TradeOff) -> Sheet:
    settings, parts = result.settings, names.parts(table, KEYS)
    metric, gap = str(settings["metric"]), str(settings["gap"])
    sheet, places = training_sheet(
        "Performance and fairness",
        f"Above {metric}, below {gap}; smaller is fairer. Ringed: on the Pareto front, so that no "
        f"other checkpoint is better in one without being worse in the other.{_choice(result)}",
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[
            Panel(_performance_axis(table, settings), 230),
            Panel(Axis(_first_upper(gap), from_zero=True), 200),
        ],
        bands="95 % intervals",
    )
    for series, part in parts:
        for panel, (column, colour) in enumerate((("performance", COLOURS[0]), ("gap", PURPLE))):
            rows = part.select("step", value=column, low=f"{column}_low", high=f"{column}_high")
            line_colour = sheet.colour(series) if len(parts) > 1 else colour
            label = metric if panel == 0 else gap
            curve = Curve(series, "", line_colour, rows, label, panel=panel, in_legend=panel == 0)
            add_curve(sheet, places, curve._replace(name=None if len(parts) > 1 else label))
            _add_marks(sheet, places, part, column, series=series, panel=panel)
    return sheet


def _add_marks(
    sheet: Sheet, places: StepPlaces, part: pl.DataFrame, column: str, *, series: str, panel: int
) -> None:
    """Rings on the front, stars on the chosen."""
    for rows, name, colour, symbol in (
        (part.filter("on_front"), "Pareto front", MUTED, "circle"),
        (part.filter(pl.col("chosen_for").is_not_null()), "fairest at a bounded loss", CHOSEN,
         "star"),
    ):  # fmt: skip
        if len(rows):
            columns = {**places.columns(rows["step"].to_list()), "value": floats(rows[column])}
            if symbol == "circle":
                columns["filled"] = np.zeros(len(rows))
            else:
                columns["named"] = [_short_step(step) for step in rows["step"]]
            sheet.traces.append(
                Trace(
                    shape="points", role="mark", series=series, columns=columns, panel=panel,
                    name=name, colour=colour, symbol=symbol, size=12,
                    written="named" if symbol == "star" and panel == 1 else "",
                )
            )  # fmt: skip


def _front(table: pl.DataFrame, names: Names, result: TradeOff) -> Sheet:
    settings, parts = result.settings, names.parts(table, KEYS)
    metric, gap = str(settings["metric"]), str(settings["gap"])
    sheet = Sheet(
        "What fairness costs",
        f"Every point is a checkpoint, joined in the order of training: {metric} against {gap}. "
        f"The strong line is the Pareto front.{_choice(result)}"
        + (" Thin bars: 95 % intervals." if _has_bands(table) else ""),
        "fixed",
        in_order(table["step"].to_list()),
        [name for name, _ in parts],
    )
    sheet.across = Axis(f"{_first_upper(gap)} (smaller is fairer)")
    sheet.panels = [Panel(_performance_axis(table, settings), 380)]
    for series, part in parts:
        front = part.filter("on_front").sort("gap")
        chosen = part.filter(pl.col("chosen_for").is_not_null())
        colour = sheet.colour(series)
        looks: list[tuple[pl.DataFrame, str, dict[str, Any]]] = [
            (part, "checkpoints", {"shape": "curve", "role": "point", "size": 5, "width": 1}),
            (front, "Pareto front", {"shape": "curve", "role": "line", "size": 8,
                                     "stepped": True, "colour": colour, "reach": ["x", "y"],
                                     "written": "named"}),
            (chosen, "fairest at a bounded loss", {"shape": "points", "role": "mark", "size": 15,
                                                   "symbol": "star", "colour": CHOSEN,
                                                   "written": "named"}),
        ]  # fmt: skip
        for rows, label, look in looks:
            if len(rows):
                columns = _plane(rows, metric=metric, gap=gap)
                sheet.traces.append(
                    Trace(
                        series=series, columns=columns, head=sheet.head(series),
                        told=[name for name in ("when", "first", "second", "share")
                              if name in columns],
                        name=sheet.name(series, label), **look,
                    )
                )  # fmt: skip
    return sheet


def _plane(rows: pl.DataFrame, *, metric: str, gap: str) -> Columns:
    columns = {
        "x": floats(rows["gap"]),
        "value": floats(rows["performance"]),
        **reached(rows, "gap_low", "gap_high", along="x"),
        **reached(rows, "performance_low", "performance_high", along="y"),
        "when": [step_name(step) for step in rows["step"]],
        "named": [_short_step(step) for step in rows["step"]],
        "first": [f"{metric}: {told(value)}" for value in rows["performance"]],
        "second": [f"{gap}: {told(value)}" for value in rows["gap"]],
    }
    if rows["front_share"].is_not_nan().any():
        columns["share"] = [
            f"on the front in {told(None if share is None else 100 * share, 3)} % of resamples"
            for share in rows["front_share"]
        ]
    return columns


def _short_step(step: Step) -> str:
    """The name of a checkpoint beside its point."""
    return "release" if step is None else short(step)


def _performance_title(settings: Mapping[str, Any]) -> str:
    name = _first_upper(str(settings["metric"]))
    return name if settings["higher_is_better"] else f"{name}, axis turned"


def _performance_axis(table: pl.DataFrame, settings: Mapping[str, Any]) -> Axis:
    title = _performance_title(settings)
    if settings["higher_is_better"]:
        return Axis(title)
    low, high = min(table["performance"]), max(table["performance"])
    return Axis(title, log=bool(low > 0 and high > 20 * low), turned=True)


def _has_bands(table: pl.DataFrame) -> bool:
    return bool((table["performance_low"].is_not_nan() | table["gap_low"].is_not_nan()).any())


def _choice(result: TradeOff) -> str:
    given: Sequence[float] = result.choices["give_up"].unique().sort().to_list()
    if not given:
        return ""
    text = " or ".join(f"{one:g}" for one in given)
    unit = f" {result.settings['unit']}" if result.settings["unit"] == "points" else ""
    return (
        f" Stars: the smallest gap among checkpoints that lose at most {text}{unit} against the "
        "best."
    )


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]
