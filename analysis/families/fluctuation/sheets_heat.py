"""Heat maps of correlations between checkpoints and between runs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import polars as pl

from logitbank.analysis.drawing.paper import short
from logitbank.analysis.drawing.sheet import Axis, Columns, Names, Panel, Sheet, Trace, told

CLIP = 0.6
"""Smallest correlation of checkpoints that has a colour of its own, as published."""
TITLES = {"mean_r": "R, averaged over the plateau", "mean_n": "N, averaged over the plateau"}
MAX_TICKS, MAX_WRITTEN = 8, 10
SIDE = 420
"""Pixels of a square of cells."""


def checkpoint_sheet(table: pl.DataFrame, names: Names) -> Sheet:
    """Correlation of R between checkpoints, each with each."""
    parts = names.parts(table, ("model", "run", "verb"))
    starts = {int(part["first_step"][0]) for _, part in parts}
    start = f" Dashed: the plateau, from step {starts.pop():,}." if len(starts) == 1 else ""
    if excluded := max(table["excluded"]):
        start += f" {excluded:,} professions without a finite R everywhere are left out."
    sheet = Sheet(
        "Agreement of checkpoints",
        f"Correlation of R over {max(table['n']):,} professions between every two checkpoints "
        "(that of N is the same). Cells are checkpoints, so the steps are not to scale; "
        f"correlations below {CLIP} have the darkest colour.{start}",
        "fixed",
        series=[series for series, _ in parts],
        one_series=True,
    )
    most = max(part["step_a"].n_unique() for _, part in parts)
    every = table["step_a"].unique().sort().to_list()
    places = range(0, most, -(-most // MAX_TICKS))
    axis = Axis(
        "Training step",
        ends=(-0.5, most - 0.5),
        ticks=[(at, short(every[at])) for at in places] if most == len(every) else [],
        grid=False,
    )
    before = {sum(step < start for step in every) for start in table["first_step"].unique()}
    place = before.pop() if len(before) == 1 and most == len(every) else 0
    rules: list[tuple[Literal["x", "y"], float]] = [("x", place - 0.5), ("y", place - 0.5)]
    sheet.across, sheet.panels = axis, [Panel(axis, SIDE, rules=rules[: 2 * (place > 0)],
                                              square=True)]  # fmt: skip
    for series, part in parts:
        steps = part["step_a"].unique().sort().to_list()
        matrix = _matrix(part, "step_a", "step_b", steps, diagonal=1.0)
        cells, numbers = _cells(matrix), np.array(steps)
        cells |= {"a": numbers[cells["x"]], "b": numbers[cells["y"]]}
        sheet.traces.append(
            Trace(
                shape="cells", role="cell", series=series, columns=cells, low=CLIP,
                head=sheet.head(series), told=["a", "b", "value"],
            )
        )  # fmt: skip
    return sheet


def run_sheet(table: pl.DataFrame, names: Names) -> Sheet:
    """Correlation of mean R and of mean N between runs, each with each."""
    parts = names.parts(table, ("model", "verb", "plateau"))
    sheet = Sheet(
        "Agreement of runs",
        "Correlation over professions between every two runs: of R and of N, averaged over the "
        "plateau's checkpoints.",
        "fixed",
        series=[series for series, _ in parts],
        beside=len(parts) == 1,
    )
    panels: list[Panel] = []
    for series, part in parts:
        runs = _runs(part)
        side = Axis(names=runs, ends=(-0.5, len(runs) - 0.5), grid=False)
        size = min(SIDE, 120 + 34 * len(runs))
        for measure, title in TITLES.items():
            across = replace(side, title=sheet.head(series if len(parts) > 1 else "", title))
            rows = part.filter(pl.col("measure") == measure)
            sheet.traces.append(
                Trace(
                    shape="cells", role="cell", series="", columns=_pairs(rows, runs),
                    panel=len(panels), head=sheet.head(series), told=["told"],
                )
            )  # fmt: skip
            panels.append(Panel(side, size, across, square=True))
    sheet.panels = panels
    return sheet


def _pairs(rows: pl.DataFrame, runs: Sequence[str]) -> Columns:
    """Cells of every two runs, which belong to no one run."""
    cells = _cells(_matrix(rows, "run_a", "run_b", runs, diagonal=np.nan))
    cells = {name: values[~np.isnan(cells["value"])] for name, values in cells.items()}
    pairs = list(zip(cells["x"], cells["y"], cells["value"].tolist(), strict=True))
    cells["told"] = [f"{runs[a]} and {runs[b]}: r = {told(r)}" for a, b, r in pairs]
    if len(runs) <= MAX_WRITTEN:
        cells["text"] = [f"{r:.2f}" for *_, r in pairs]
        cells["ink"] = ["#000000" if r > 0.5 else "#ffffff" for *_, r in pairs]
    return cells


def _runs(part: pl.DataFrame) -> list[str]:
    return sorted({*part["run_a"], *part["run_b"]}, key=lambda run: (len(run), run))


def _matrix(
    table: pl.DataFrame, a: str, b: str, names: Sequence[object], *, diagonal: float
) -> np.ndarray:
    place = {name: at for at, name in enumerate(names)}
    matrix = np.full((len(names), len(names)), np.nan)
    np.fill_diagonal(matrix, diagonal)
    for first, second, r in table.select(a, b, "r").iter_rows():
        matrix[place[first], place[second]] = r
    return matrix


def _cells(matrix: np.ndarray) -> Columns:
    """Places of all cells, and values of single precision, which has more digits than are told."""
    y, x = np.indices(matrix.shape, dtype=np.int16)
    return {"x": x.ravel(), "y": y.ravel(), "value": matrix.ravel().astype(np.float32)}
