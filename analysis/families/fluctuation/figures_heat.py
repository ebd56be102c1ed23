"""Heat maps of correlations between checkpoints and between runs."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from logitbank.analysis.drawing.paper import INK, headline, short
from logitbank.analysis.frames.expressions import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.colorbar import Colorbar
    from matplotlib.figure import Figure

COLOUR_MAP = "cividis"
"""Even in lightness, and the same to colour-blind readers."""
CLIP = 0.6
"""Smallest correlation of checkpoints that has a colour of its own, as published."""
TITLES = {"mean_r": "R, averaged over the plateau", "mean_n": "N, averaged over the plateau"}
MAX_TICKS, MAX_WRITTEN = 8, 10


def checkpoint_heat_map(table: pl.DataFrame) -> "Figure":
    """Correlation of R between checkpoints, each with each."""
    from matplotlib.figure import Figure

    steps = table["step_a"].unique().sort().to_list()
    matrix = _matrix(table, "step_a", "step_b", steps, diagonal=1.0)
    figure = Figure(figsize=(6.6, 5.0), layout="constrained")
    axes = figure.add_subplot()
    mesh = _heat(axes, matrix, low=CLIP)
    _colour_bar(figure, mesh, axes, matrix)
    k = sum(step < table["first_step"][0] for step in steps)
    places = _tick_places(len(steps), k)
    labels = [short(steps[at]) for at in places]
    axes.set_xticks(places, labels)
    axes.set_yticks(places, labels)
    if k:
        for line in (axes.axhline, axes.axvline):
            line(k - 0.5, color="white", lw=1.1, ls=(0, (4, 3)))
    axes.set_xlabel("Training step")
    axes.set_ylabel("Training step")
    series_headline(figure, "Agreement of checkpoints", table)
    n, excluded = table["n"][0], table["excluded"][0]
    figure.set_label(
        f"Correlation of R over {n:,} professions between every two checkpoints (that of N is the "
        f"same). Cells are checkpoints, so the steps are not to scale; correlations below {CLIP} "
        "have the darkest colour. White lines: the start of the plateau."
        + (
            f" {excluded:,} professions without a finite R everywhere are left out."
            if excluded
            else ""
        )
    )
    return figure


def run_heat_map(table: pl.DataFrame) -> "Figure":
    """Correlation of mean R and of mean N between runs, each with each."""
    from matplotlib.figure import Figure

    runs = sorted({*table["run_a"], *table["run_b"]}, key=_natural)
    size = max(2.6, 0.42 * min(len(runs), 14) + 1.2)
    figure = Figure(figsize=(2 * size + 1.0, size + 0.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, measure in zip(panels, TITLES, strict=True):
        rows = table.filter(pl.col("measure") == measure)
        matrix = _matrix(rows, "run_a", "run_b", runs, diagonal=np.nan)
        mesh = _heat(axes, matrix, low=0.0)
        axes.set_xticks(range(len(runs)), runs, rotation=0 if len(runs) <= 5 else 90)
        axes.set_yticks(range(len(runs)), runs)
        axes.set_title(TITLES[measure], loc="left", fontsize=9, color=INK)
        if len(runs) <= MAX_WRITTEN:
            _write_cells(axes, matrix)
    _colour_bar(figure, mesh, panels, table["r"].to_numpy())
    series_headline(figure, "Agreement of runs", table, plateau=True)
    figure.set_label(
        "Correlation over professions between every two runs: of R and of N, averaged over the "
        "plateau's checkpoints."
    )
    return figure


def series_headline(
    figure: "Figure", title: str, table: pl.DataFrame, *, plateau: bool = False
) -> None:
    """A headline with the model, run, verb and plateau of a table's first row."""
    head = table.row(0, named=True)
    run = head.get("run", "main")
    names = [head["model"], *([] if run == "main" else [run]), f"“{head['verb']}”"]
    headline(figure, title, [*names, *([f"from {short(head['plateau'])}"] if plateau else [])])


def _matrix(
    table: pl.DataFrame, a: str, b: str, names: Sequence[object], *, diagonal: float
) -> Floats:
    place = {name: at for at, name in enumerate(names)}
    matrix = np.full((len(names), len(names)), np.nan)
    np.fill_diagonal(matrix, diagonal)
    for first, second, r in table.select(a, b, "r").iter_rows():
        matrix[place[first], place[second]] = r
    return matrix


def _heat(axes: "Axes", matrix: Floats, *, low: float) -> "QuadMesh":
    """Vector cells, since a report embeds no picture, with edges, or browsers show gaps."""
    edges = np.arange(len(matrix) + 1) - 0.5
    axes.set_facecolor("#d9dce1")  # a correlation that is not defined
    mesh = axes.pcolormesh(
        edges, edges, matrix, cmap=COLOUR_MAP, vmin=low, vmax=1.0,
        edgecolors="face", linewidth=0.5, clip_on=False,
    )  # fmt: skip
    axes.set_aspect("equal")
    for spine in axes.spines.values():
        spine.set_visible(False)
    return mesh


def _colour_bar(
    figure: "Figure", mesh: "QuadMesh", axes: "Axes | Sequence[Axes]", values: Floats
) -> "Colorbar":
    low, _ = mesh.get_clim()
    known = values[np.isfinite(values)]
    below = bool(len(known)) and low is not None and known.min() < low
    bar = figure.colorbar(
        mesh, ax=axes, shrink=0.8, aspect=24, pad=0.03, extend="min" if below else "neither"
    )
    assert bar.solids is not None
    bar.solids.set_rasterized(False)  # an embedded picture would not show in a report
    bar.solids.set_edgecolor("face")
    bar.outline.set_visible(False)
    bar.set_label("Pearson r")
    return bar


def _tick_places(count: int, k: int) -> list[int]:
    """A few, evenly spread on both sides of where the plateau starts, which is one of them."""
    step = max(1, round((count - 1) / MAX_TICKS))
    before = range(k, -1, -step)
    return sorted({*before, *range(k, count, step)})


def _write_cells(axes: "Axes", matrix: Floats) -> None:
    for (y, x), value in np.ndenumerate(matrix):
        if np.isfinite(value):
            ink = "white" if value < 0.6 else "#1b1b1b"
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=7.5, color=ink)


def _natural(name: str) -> list[tuple[int, str]]:
    """Order in which seed2 comes before seed10."""
    parts = re.findall(r"\d+|\D+", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
