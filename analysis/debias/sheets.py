"""The figures of debiasing: the comparison, and bias against language modelling."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from logitbank.analysis.debias.results import DebiasComparison, DebiasSearch
from logitbank.analysis.drawing.names import named_tables
from logitbank.analysis.drawing.paper import COLOURS, GREEN, INK, MUTED, PALETTE
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
from logitbank.store.steps import in_order

KEYS = ("model", "run", "step")
ROW = 24
"""Pixels of a row."""
_COLOURS = {"none": MUTED, "untrained": COLOURS[1], "trained": COLOURS[0]}
_MEASURES: Mapping[str, tuple[str, Sequence[float]]] = {
    "icat": ("iCAT", (100.0, 50.0)),
    "lms": ("lms", (100.0, 50.0)),
    "ss": ("ss", (50.0,)),
    "abs_c": ("UnQover, mean |C|", (0.0,)),
}
_SYMBOLS = {"none": ("star", 16), "filter": ("circle", 8), "untrained": ("x", 9),
            "temperature": ("square", 8)}  # fmt: skip


def comparison_figure_data(result: DebiasComparison) -> dict[str, pl.DataFrame]:
    """`comparison`, of every model, run and step; one row per filter, prefix and language."""
    rows = result.comparison.filter(pl.col("label") != "reference")
    parts = rows.partition_by(KEYS, maintain_order=True)
    return named_tables({"comparison": ((list(KEYS), part) for part in parts)})


def comparison_sheets(
    result: DebiasComparison, tables: Mapping[str, pl.DataFrame], names: Names
) -> dict[str, Sheet]:
    """The comparison: a row for each filter, prefix and language, a panel for each measure."""
    return {kind: _comparison(table, names) for kind, table in tables.items()}


def _comparison(table: pl.DataFrame, names: Names) -> Sheet:
    measures = {name: about for name, about in _MEASURES.items()
                if table[name].null_count() < len(table)}  # fmt: skip
    parts, labels = names.parts(table, KEYS[:2]), list(dict.fromkeys(_labels(table)))
    steps = in_order(table["step"].to_list())
    rows = Axis(names=labels, turned=True, grid=False)
    sheet = Sheet(
        "Debiasing",
        "StereoSet's intra-sentence scores with 95 % intervals, and UnQover's mean |C|. Vertical "
        "lines: ideal model, and random model at 50. A filter is good where |C| falls, ss nears 50 "
        "and lms stays.",
        "checkpoint" if len(steps) > 1 else "fixed",
        steps,
        [series for series, _ in parts],
        one_series=True,
        beside=True,
        panels=[
            Panel(rows, 30 + ROW * len(labels), Axis(title), rules=[("x", line) for line in lines])
            for title, lines in measures.values()
        ],
    )
    for series, part in parts:
        for of_filter in part.partition_by("filter", maintain_order=True):
            for panel, (name, (title, _)) in enumerate(measures.items()):
                name_of_filter, known = of_filter["filter"][0], of_filter.drop_nulls(name)
                if len(known):
                    sheet.traces.append(
                        Trace(
                            shape="points", role="point", series=series, group=name_of_filter,
                            columns=_dots(known, name, title, labels), panel=panel, reach=["x"],
                            head=sheet.head(series), told=["what", "told", "ends"], size=8,
                            colour=_COLOURS[name_of_filter], slides=True,
                        )
                    )  # fmt: skip
    return sheet


def _dots(rows: pl.DataFrame, name: str, title: str, labels: Sequence[str]) -> Columns:
    low, high = (
        rows[end] if end in rows.columns else pl.Series([None] * len(rows), dtype=pl.Float64)
        for end in (f"{name}_low", f"{name}_high")
    )
    called = _labels(rows)
    return {
        "x": floats(rows[name]),
        "value": floats([labels.index(label) for label in called]),
        **reached(pl.DataFrame({"low": low, "high": high}), "low", "high", along="x"),
        "filled": np.array([float(condition == "plain") for condition in rows["condition"]]),
        "step": rows["step"].to_list(),
        "what": called,
        "told": [f"{title}: {told(value)}" for value in rows[name]],
        "ends": [f"95 %: {interval(*ends)}" for ends in zip(low, high, strict=True)],
    }


def _labels(rows: pl.DataFrame) -> list[str]:
    parts = rows.select("label", "language", pl.col("condition").replace("plain", None))
    return [" · ".join(part for part in row if part) for row in parts.iter_rows()]


def search_figure_data(result: DebiasSearch) -> dict[str, pl.DataFrame]:
    """`debias_search`: a row for each filter and baseline that has StereoSet's scores."""
    return {"debias_search": result.points.drop_nulls("lms")}


def search_sheets(
    result: DebiasSearch, tables: Mapping[str, pl.DataFrame], names: Names
) -> dict[str, Sheet]:
    """Held-out |C| against lms; the chosen point has a ring."""
    return {kind: _search(table, str(result.by.about["model"])) for kind, table in tables.items()}


def _search(table: pl.DataFrame, model: str) -> Sheet:
    sheet = Sheet(
        "Bias against language modelling",
        "Each mark is a filter or a baseline; up and left is better. Line: marks that no other "
        "beats in both. Ring: chosen on instances and terms that are not shown here.",
        "fixed",
        series=[model],
        across=Axis("UnQover, mean |C| on held-out instances", from_zero=True),
        panels=[Panel(Axis("StereoSet, lms"), 360)],
    )
    front = table.filter("front").sort("abs_c")
    _add(sheet, front, shape="curve", role="line", width=1)
    sizes = table["k"].drop_nulls().unique().sort().to_list()
    for (kind, k), rows in table.partition_by(
        "kind", "k", as_dict=True, maintain_order=True
    ).items():
        symbol, size = _SYMBOLS[str(kind)]
        colours = {"none": INK, "temperature": GREEN, "untrained": COLOURS[1]}
        colour = colours.get(str(kind), PALETTE[0])
        shade = 1.0 if k is None else 0.35 + 0.65 * (sizes.index(k) + 1) / len(sizes)
        label = {"none": "no filter", "filter": f"trained, k = {k}",
                 "untrained": f"untrained, k = {k}"}.get(str(kind), str(kind))  # fmt: skip
        _add(
            sheet, rows, shape="points", role="point", group=str(kind), name=label, head=label,
            colour=colour, alpha=shade, symbol=symbol, size=size, told=["bias", "language"],
        )  # fmt: skip
    best = table.filter("best")
    _add(sheet, best, {"filled": np.zeros(len(best))}, shape="points", role="mark", colour=INK,
         size=19)  # fmt: skip
    return sheet


def _add(
    sheet: Sheet, rows: pl.DataFrame, columns: Mapping[str, Any] | None = None, **look: Any
) -> None:
    places = {
        "x": floats(rows["abs_c"]),
        "value": floats(rows["lms"]),
        "bias": [f"mean |C|: {told(value)}" for value in rows["abs_c"]],
        "language": [f"lms: {told(value)}" for value in rows["lms"]],
    }
    sheet.traces.append(
        Trace(series=sheet.series[0], columns={**places, **(columns or {})}, **look)
    )
