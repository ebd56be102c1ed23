"""Interactive heat maps of correlations between checkpoints and between runs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from logitbank.analysis.fluctuation_heat import CLIP, MAX_WRITTEN, TITLES
from logitbank.analysis.interactive_parts import AXIS, Names, Sheet, plain

SQUARE = {"constrain": "domain", "showgrid": False, "type": "category"}


def checkpoint_sheet(table: pl.DataFrame, names: Names) -> Sheet:
    """Correlation of R between checkpoints, each with each."""
    parts = names.parts(table, ("model", "run", "verb"))
    starts = {int(part["first_step"][0]) for _, part in parts}
    told = f" The plateau starts at step {starts.pop():,}." if len(starts) == 1 else ""
    sheet = Sheet(
        "Agreement of checkpoints",
        f"Correlation of R over {max(table['n']):,} professions between every two checkpoints "
        "(that of N is the same). Cells are checkpoints, so the steps are not to scale; "
        f"correlations below {CLIP} have the darkest colour.{told}",
        "fixed",
        series=[series for series, _ in parts],
        one_series=True,
        height=470,
    )
    title = {"text": "Training step"}
    sheet.layout = {
        "xaxis": {**AXIS, **SQUARE, "title": title, "nticks": 9},
        "yaxis": {**AXIS, **SQUARE, "title": title, "nticks": 9, "scaleanchor": "x"},
    }
    for series, part in parts:
        steps = part["step_a"].unique().sort().to_list()
        matrix = _matrix(part, "step_a", "step_b", steps, diagonal=1.0)
        cells = _cells(matrix, [f"{step:,}" for step in steps], low=CLIP) | {
            "hovertemplate": f"{sheet.head(series)}<br>steps %{{x}} and %{{y}}"
            "<br>r = %{z:.4~r}<extra></extra>",
        }
        sheet.add(cells, series=series, role="cell")
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
        one_series=True,
        height=400,
    )
    domains = ([0, 0.45], [0.55, 1])
    for at, (title, domain) in enumerate(zip(TITLES.values(), domains, strict=True)):
        end = str(at + 1) if at else ""
        head = {"text": title}
        sheet.layout[f"xaxis{end}"] = {
            **AXIS, **SQUARE, "domain": domain, "anchor": f"y{end}", "title": head,
        }  # fmt: skip
        sheet.layout[f"yaxis{end}"] = {
            **AXIS, **SQUARE, "anchor": f"x{end}", "scaleanchor": f"x{end}",
        }  # fmt: skip
    for series, part in parts:
        runs = sorted({*part["run_a"], *part["run_b"]}, key=lambda run: (len(run), run))
        for at, measure in enumerate(TITLES):
            rows = part.filter(pl.col("measure") == measure)
            end = str(at + 1) if at else ""
            matrix = _matrix(rows, "run_a", "run_b", runs, diagonal=np.nan)
            cells = _cells(matrix, [plain(run) for run in runs], low=0.0) | {
                "xaxis": f"x{end}",
                "yaxis": f"y{end}",
                "showscale": at == 1,
                "texttemplate": "%{z:.2f}" if len(runs) <= MAX_WRITTEN else "",
                "hovertemplate": f"{sheet.head(series)}<br>%{{x}} and %{{y}}<br>r = %{{z:.4~r}}"
                "<extra></extra>",
            }
            sheet.add(cells, series=series, role="cell")
    return sheet


def _matrix(
    table: pl.DataFrame, a: str, b: str, names: Sequence[object], *, diagonal: float
) -> np.ndarray:
    place = {name: at for at, name in enumerate(names)}
    matrix = np.full((len(names), len(names)), np.nan)
    np.fill_diagonal(matrix, diagonal)
    for first, second, r in table.select(a, b, "r").iter_rows():
        matrix[place[first], place[second]] = r
    return matrix


def _cells(matrix: np.ndarray, names: Sequence[str], *, low: float) -> dict[str, Any]:
    return {
        "type": "heatmap",
        "x": list(names),
        "y": list(names),
        "z": matrix.astype(np.float32),
        "zmin": low,
        "zmax": 1,
        "colorscale": "Cividis",
        "hoverongaps": False,
        "colorbar": {
            "title": {"text": "Pearson r", "side": "right"},
            "outlinewidth": 0,
            "thickness": 14,
        },
        "name": "",
        "showlegend": False,
    }
