"""The figures of fluctuation."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import polars as pl

from logitbank.analysis.drawing.paper import COLOURS, GREEN, MUTED, PALETTE, shortened
from logitbank.analysis.drawing.places import StepPlaces
from logitbank.analysis.drawing.sheet import (
    Axis,
    Columns,
    Names,
    Note,
    Panel,
    Sheet,
    Trace,
    floats,
    told,
)
from logitbank.analysis.drawing.steps import Curve, add_curve, training_sheet
from logitbank.analysis.families.fluctuation.metric import Fluctuation
from logitbank.analysis.families.fluctuation.scores import PRONOUNS
from logitbank.analysis.families.fluctuation.sheets_heat import checkpoint_sheet, run_sheet
from logitbank.wording import signed

KEYS = ("model", "run", "verb")
CASE_COLOURS = (*PALETTE[:4], MUTED)
ROLES = {
    "prior": "the prior",
    "largest cv_r": "largest CV of R",
    "smallest cv_r": "smallest CV of R",
}


def fluctuation_sheets(
    result: Fluctuation, tables: Mapping[str, pl.DataFrame], names: Names
) -> dict[str, Sheet]:
    """One of each kind, from its table."""
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
    panels = dict[str, set[str]]()
    for name, rows in _panels(table):
        panels.setdefault(name, set()).add(str(rows["occupation"][0]))
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
            Panel(
                Axis("of its maximum" if at else "Score / its maximum", ends=(-0.04, 1.3)),
                180,
                notes=[Note(_about(name, jobs), 1.28, size=12)],
            )
            for at, (name, jobs) in enumerate(panels.items())
        ],
    )
    for series, part in parts:
        for name, rows in _panels(part):
            at = list(panels).index(name)
            for pronoun, colour in zip(PRONOUNS, COLOURS, strict=False):
                line = rows.filter(pl.col("pronoun") == pronoun).select(
                    "step", value="relative", low="relative", high="relative"
                )
                label = f"{rows['occupation'][0]}, of its maximum"
                curve = Curve(series, pronoun, colour, line, label, panel=at, in_legend=at == 0)
                add_curve(sheet, places, curve)
            _add_start(sheet, places, int(part["first_step"][0]), series=series, panel=at)
    return sheet


def _panels(table: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """What is in one panel: a role, or a profession that was asked for."""
    for rows in table.partition_by("role", "occupation", maintain_order=True):
        role = str(rows["role"][0])
        yield ROLES.get(role) or str(rows["occupation"][0]), rows


def _about(name: str, jobs: Collection[str]) -> str:
    """What a panel shows, and of which profession where it is the same in all series."""
    if len(jobs) > 1 or name in jobs:
        return name
    return f"{shortened(next(iter(jobs)))}, {name}"


def _add_start(sheet: Sheet, places: StepPlaces, step: int, *, series: str, panel: int) -> None:
    columns = {
        **places.columns([step, step]),
        "value": floats([0, 1.05]),
        "told": [f"the plateau starts at step {step:,}"] * 2,
    }
    sheet.traces.append(
        Trace(
            shape="curve", role="mark", series=series, columns=columns, head=sheet.head(series),
            told=["told"], panel=panel, width=1, dash="dashed",
        )
    )  # fmt: skip


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
    )
    sheet.across = Axis("Mean certainty C")
    sheet.panels = [Panel(Axis(f"CV of {measure}"), 260) for measure in "RN"]
    for series, part in parts:
        for panel, (measure, colour) in enumerate((("R", COLOURS[0]), ("N", GREEN))):
            rows = part.filter(pl.col("measure") == measure)
            points, prior = rows.filter(~pl.col("prior")), rows.filter("prior")
            r = rows["r"][0] if len(rows) else None
            known = f"r = {signed(r, '.2f')}" if r is not None and r == r else "r undefined"
            common: dict[str, Any] = {
                "series": series,
                "group": measure,
                "panel": panel,
                "head": series,
            }
            if len(points):
                sheet.traces.append(
                    Trace(
                        shape="points", role="point", columns=_cloud(points, measure),
                        told=["what", "told"], colour=colour, size=5, alpha=0.5,
                        name=f"{measure}: {known}, {len(points):,} professions", **common,
                    )
                )  # fmt: skip
            if len(prior):
                sheet.traces.append(
                    Trace(
                        shape="points", role="point", columns=_cloud(prior, measure),
                        told=["what", "told"], size=12, symbol="x", width=3, name="prior", **common,
                    )
                )  # fmt: skip
    return sheet


def _cloud(rows: pl.DataFrame, measure: str) -> Columns:
    return {
        "x": floats(rows["certainty"]),
        "value": floats(rows["cv"]),
        "what": rows["occupation"].to_list(),
        "told": [
            f"C: {told(certainty)}, CV of {measure}: {told(cv)}"
            for certainty, cv in rows.select("certainty", "cv").iter_rows()
        ],
    }


def _frequencies(table: pl.DataFrame, names: Names) -> Sheet:
    sheet = Sheet(
        "Corpus frequency of professions",
        "Professions sorted by their frequency in the corpus, in each letter case. Those that "
        "never occur have no place on a log scale and are counted in the legend.",
        "fixed",
        legend=True,
        across=Axis("Professions, the most frequent first"),
        panels=[Panel(Axis("Corpus frequency, log scale", log=True), 330)],
    )
    for at, rows in enumerate(table.partition_by("case", maintain_order=True)):
        case, some = str(rows["case"][0]), rows.filter(pl.col("frequency") > 0)
        missing = len(rows) - len(some)
        columns = {
            "x": floats(some["rank"]),
            "value": floats(some["frequency"]),
            "what": some["occupation"].to_list(),
            "told": [
                f"frequency: {told(frequency)}, rank {rank:,}"
                for frequency, rank in some.select("frequency", "rank").iter_rows()
            ],
            "most": [*some["occupation"].head(1), *[""] * (len(some) - 1)],
        }
        sheet.traces.append(
            Trace(
                shape="curve", role="line", series="", group=case, columns=columns, head=case,
                told=["what", "told"], colour=CASE_COLOURS[at % len(CASE_COLOURS)], written="most",
                name=case + (f" ({missing:,} never)" if missing else ""),
            )
        )  # fmt: skip
    return sheet
