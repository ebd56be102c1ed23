"""The interactive figures of fluctuation."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from logitbank.analysis.figure_axes import COLOURS, MUTED, signed
from logitbank.analysis.fluctuation_figures import (
    CASE_COLOURS,
    N_COLOUR,
    R_COLOUR,
    ROLES,
)
from logitbank.analysis.interactive_heat import checkpoint_sheet, run_sheet
from logitbank.analysis.interactive_parts import AXIS, Names, Sheet, plain, rounded
from logitbank.analysis.interactive_steps import (
    Curve,
    Panel,
    StepPlaces,
    add_curve,
    axis_of,
    training_sheet,
)
from logitbank.analysis.score_table import PRONOUNS

KEYS = ("model", "run", "verb")


def fluctuation_sheets(tables: Mapping[str, pl.DataFrame]) -> dict[str, Sheet]:
    """All of them, from one table of each kind."""
    names = Names(tables.values())
    draw = {
        "trajectories": _trajectories,
        "certainty_cv": _certainty_cv,
        "checkpoint_pairs": checkpoint_sheet,
        "run_pairs": run_sheet,
        "frequencies": _frequencies,
    }
    return {kind: draw[kind](table, names) for kind, table in tables.items()}


def _trajectories(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table, KEYS)
    panels = list(dict.fromkeys(name for name, _ in _panels(table)))
    extremes = any(role.endswith("cv_r") for role in table["role"].unique())
    sheet, places = training_sheet(
        "Pronoun scores over training",
        "Probability of each pronoun at the mask, divided by its own largest over the training "
        "steps. Dashed: the start of the plateau."
        + (" Shown are the professions of largest and of smallest CV of R." if extremes else "")
        + (" Diamonds: the public release." if table["step"].null_count() else ""),
        steps=table["step"].to_list(),
        series=[series for series, _ in parts],
        panels=[
            Panel("of its maximum" if at else "Score / its maximum", 170, {"range": [-0.04, 1.25]})
            for at in range(len(panels))
        ],
    )
    sheet.layout["annotations"] = [
        {"text": plain(name), "xref": "paper", "x": 0.005, "yref": f"{axis_of(at)} domain", "y": 1,
         "yanchor": "top", "xanchor": "left", "showarrow": False, "font": {"size": 12}}
        for at, name in enumerate(panels)
    ]  # fmt: skip
    for series, part in parts:
        for name, rows in _panels(part):
            at = panels.index(name)
            for pronoun, colour in zip(PRONOUNS, COLOURS, strict=False):
                own = rows.filter(pl.col("pronoun") == pronoun).select(
                    "step", value="relative", low="relative", high="relative"
                )
                label = f"{rows['occupation'][0]}, of its maximum"
                curve = Curve(series, pronoun, colour, own, label, panel=at, in_legend=at == 0)
                add_curve(sheet, places, curve)
            _add_start(sheet, places, int(part["first_step"][0]), series=series, panel=at)
    return sheet


def _panels(table: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """What is in one panel: a role, or a profession that was asked for."""
    for rows in table.partition_by("role", "occupation", maintain_order=True):
        role = str(rows["role"][0])
        yield ROLES.get(role) or str(rows["occupation"][0]), rows


def _add_start(sheet: Sheet, places: StepPlaces, step: int, *, series: str, panel: int) -> None:
    place = places.place(step)
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "start of the plateau",
        "showlegend": False,
        "yaxis": axis_of(panel),
        "x": rounded([place, place]),
        "y": [0, 1.05],
        "customdata": [[step], [step]],
        "line": {"color": MUTED, "width": 1, "dash": "dash"},
        "hovertemplate": f"{sheet.head(series)}<br>the plateau starts at step {step:,}"
        "<extra></extra>",
    }
    sheet.add(line, series=series, role="mark")


def _certainty_cv(table: pl.DataFrame, names: Names) -> Sheet:
    parts = names.parts(table, (*KEYS, "plateau"))
    sheet = Sheet(
        "Certainty and fluctuation",
        "Every point is a profession: mean P(he) + P(she) over the plateau, against the "
        "coefficient of variation of R = P(he) / P(she), and of N, which is R divided by the "
        "prior's. × is the prior with the CV of its own R, in both panels.",
        "fixed",
        series=[series for series, _ in parts],
        one_series=True,
        height=400,
    )
    title = {"text": "Mean certainty C"}
    sheet.layout = {
        "xaxis": {**AXIS, "title": title, "domain": [0, 0.465]},
        "yaxis": {**AXIS, "title": {"text": "CV of R"}},
        "xaxis2": {**AXIS, "title": title, "domain": [0.535, 1], "anchor": "y2", "matches": "x"},
        "yaxis2": {**AXIS, "title": {"text": "CV of N"}, "anchor": "x2", "matches": "y",
                   "showticklabels": True},
    }  # fmt: skip
    for series, part in parts:
        for axis, measure, colour in (("", "R", R_COLOUR), ("2", "N", N_COLOUR)):
            rows = part.filter(pl.col("measure") == measure)
            points, prior = rows.filter(~pl.col("prior")), rows.filter("prior")
            r = rows["r"][0] if len(rows) else None
            known = f"r = {signed(r)}" if r is not None and r == r else "r undefined"
            for own, name, marker in (
                (points, f"{measure}: {known}, {len(points):,} professions",
                 {"size": 5, "opacity": 0.5, "color": colour}),
                (prior, "prior", {"size": 12, "symbol": "x-thin", "line": {"width": 3,
                 "color": MUTED}, "color": MUTED}),
            ):  # fmt: skip
                cloud = _cloud(sheet, own, series, measure) | {
                    "name": name, "marker": marker, "xaxis": f"x{axis}", "yaxis": f"y{axis}",
                    "showlegend": name != "prior" or not axis, "legendgroup": f"{series}|{name}",
                }  # fmt: skip
                if len(own):
                    sheet.add(cloud, series=series, group=measure, role="point")
    return sheet


def _cloud(sheet: Sheet, rows: pl.DataFrame, series: str, measure: str) -> dict[str, Any]:
    """Points of single precision, which has more digits than are drawn or told."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": rows["certainty"].to_numpy().astype(np.float32),
        "y": rows["cv"].to_numpy().astype(np.float32),
        "text": [plain(name) for name in rows["occupation"]],
        "hovertemplate": f"<b>%{{text}}</b> · {plain(series)}<br>C: %{{x:,.4~r}}"
        f"<br>CV of {measure}: %{{y:,.4~r}}<extra></extra>",
    }


def _frequencies(table: pl.DataFrame, names: Names) -> Sheet:
    sheet = Sheet(
        "Corpus frequency of professions",
        "Professions sorted by their frequency in the corpus, in each letter case. Those that "
        "never occur have no place on a log scale and are counted in the legend.",
        "fixed",
        height=380,
    )
    sheet.layout = {
        "showlegend": True,  # which tells what never occurs
        "xaxis": {**AXIS, "title": {"text": "Professions, the most frequent first"}},
        "yaxis": {**AXIS, "title": {"text": "Corpus frequency, log scale"}, "type": "log"},
    }
    for at, rows in enumerate(table.partition_by("case", maintain_order=True)):
        case, some = str(rows["case"][0]), rows.filter(pl.col("frequency") > 0)
        lacking = len(rows) - len(some)
        line = {
            "type": "scatter",
            "mode": "lines",
            "name": plain(case + (f" ({lacking:,} never)" if lacking else "")),
            "x": rounded(some["rank"]),
            "y": rounded(some["frequency"]),
            "text": [plain(name) for name in some["occupation"]],
            "line": {"color": CASE_COLOURS[at % len(CASE_COLOURS)], "width": 2},
            "hovertemplate": f"<b>%{{text}}</b> · {plain(case)}<br>frequency: %{{y:,.4~r}}"
            "<br>rank %{x:,}<extra></extra>",
        }
        sheet.add(line, series="", group=case, role="line")
    return sheet
