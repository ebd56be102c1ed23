"""The interactive figures of a trade-off."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from logitbank.analysis.figure_axes import COLOURS, MUTED
from logitbank.analysis.interactive_parts import (
    AXIS,
    Names,
    Role,
    Sheet,
    Trace,
    in_order,
    plain,
    reach,
    rounded,
    told,
    when,
)
from logitbank.analysis.interactive_steps import (
    Curve,
    Panel,
    StepPlaces,
    add_curve,
    axis_of,
    training_sheet,
)
from logitbank.analysis.tradeoff import TradeOff
from logitbank.analysis.tradeoff_figures import CHOSEN, PURPLE

KEYS = ("model", "run")


def tradeoff_sheets(result: TradeOff, tables: Mapping[str, pl.DataFrame]) -> dict[str, Sheet]:
    """All of them, from one table of each kind."""
    names = Names(tables.values())
    draw = {"tradeoff_curves": _curves, "tradeoff_front": _front}
    return {kind: draw[kind](table, names, result) for kind, table in tables.items()}


def _curves(table: pl.DataFrame, names: Names, result: TradeOff) -> Sheet:
    settings, parts = result.settings, names.parts(table, KEYS)
    metric, gap = str(settings["metric"]), str(settings["gap"])
    sheet, places = training_sheet(
        "Performance and fairness",
        f"Above {metric}, below {gap}; smaller is fairer. Ringed: on the Pareto front, so that no "
        f"other checkpoint is better in one without being worse in the other.{_choice(result)}"
        + (" Bands: 95 % intervals." if _has_bands(table) else ""),
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[
            Panel(_performance_title(settings), 230, _performance_axis(table, settings)),
            Panel(_first_upper(gap), 200, {"rangemode": "tozero"}),
        ],
    )
    for series, part in parts:
        for panel, (column, colour) in enumerate((("performance", COLOURS[0]), ("gap", PURPLE))):
            rows = part.select("step", value=column, low=f"{column}_low", high=f"{column}_high")
            own = sheet.colour(series) if len(parts) > 1 else colour
            label = metric if panel == 0 else gap
            curve = Curve(series, "", own, rows, label, panel=panel, in_legend=panel == 0)
            add_curve(sheet, places, curve._replace(name=None if len(parts) > 1 else plain(label)))
            for mark in _marks(part, column, places, panel=panel):
                sheet.add({"hoverinfo": "skip", **mark}, series=series, role="mark")
    return sheet


def _marks(part: pl.DataFrame, column: str, places: StepPlaces, *, panel: int) -> list[Trace]:
    """Rings on the front, stars on the chosen."""
    marks = []
    for rows, name, marker in (
        (part.filter("on_front"), "Pareto front",
         {"symbol": "circle-open", "size": 11, "color": MUTED, "line": {"width": 1.6}}),
        (part.filter(pl.col("chosen_for").is_not_null()), "fairest at a bounded loss",
         {"symbol": "star", "size": 13, "color": CHOSEN}),
    ):  # fmt: skip
        if len(rows):
            marks.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "legendgroup": name,
                    "showlegend": panel == 0,
                    "yaxis": axis_of(panel),
                    "x": rounded(places.place(step) for step in rows["step"]),
                    "y": rounded(rows[column]),
                    "customdata": [[step] for step in rows["step"]],
                    "marker": marker,
                }
            )
    return marks


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
    sheet.layout = {
        "xaxis": {**AXIS, "title": {"text": plain(_first_upper(gap)) + " (smaller is fairer)"}},
        "yaxis": {
            **AXIS,
            "title": {"text": plain(_performance_title(settings))},
            **_performance_axis(table, settings),
        },
    }
    for series, part in parts:
        front = part.filter("on_front").sort("gap")
        colour = sheet.colour(series)
        ends = {
            f"error_{axis}": {**bars, "color": colour, "thickness": 0.8}
            for axis, column in (("x", "gap"), ("y", "performance"))
            if (bars := reach(front, column, f"{column}_low", f"{column}_high"))
        }
        chosen = part.filter(pl.col("chosen_for").is_not_null())
        looks: list[tuple[pl.DataFrame, Role, str, Trace]] = [
            (part, "point", "checkpoints", _look(MUTED, size=5, width=1) | {"opacity": 0.6}),
            (front, "line", "Pareto front", _look(colour, size=8, width=2, shape="hv") | ends),
            (chosen, "mark", "fairest at a bounded loss", {
                "mode": "markers", "marker": {"size": 14, "symbol": "star", "color": CHOSEN},
            }),
        ]  # fmt: skip
        for rows, role, label, look in looks:
            if len(rows):
                trace = _plane(sheet, rows, series=series, metric=metric, gap=gap)
                named = sheet.name(series, label)
                sheet.add({**trace, **look, "name": named}, series=series, role=role)
    return sheet


def _look(colour: str, *, size: int, width: int, shape: str = "linear") -> Trace:
    return {
        "mode": "lines+markers",
        "marker": {"size": size, "color": colour},
        "line": {"width": width, "color": colour, "shape": shape},
    }


def _plane(sheet: Sheet, rows: pl.DataFrame, *, series: str, metric: str, gap: str) -> Trace:
    share = [told(None if x is None else 100 * x, 3) for x in rows["front_share"]]
    known = rows["front_share"].is_not_nan().any()
    return {
        "type": "scatter",
        "x": rounded(rows["gap"]),
        "y": rounded(rows["performance"]),
        "customdata": [
            [step, when(step), text] for step, text in zip(rows["step"], share, strict=True)
        ],
        "hovertemplate": f"{sheet.head(series)}<br>%{{customdata[1]}}"
        f"<br>{plain(metric)}: %{{y:,.4~r}}<br>{plain(gap)}: %{{x:,.4~r}}"
        + ("<br>on the front in %{customdata[2]} % of resamples" if known else "")
        + "<extra></extra>",
    }


def _performance_title(settings: Mapping[str, Any]) -> str:
    name = _first_upper(str(settings["metric"]))
    return name if settings["higher_is_better"] else f"{name}, axis turned"


def _performance_axis(table: pl.DataFrame, settings: Mapping[str, Any]) -> dict[str, Any]:
    if settings["higher_is_better"]:
        return {}
    low, high = min(table["performance"]), max(table["performance"])
    scale = {"type": "log"} if low > 0 and high > 20 * low else {}
    return {**scale, "autorange": "reversed"}


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
