"""Figures to look into: with hovering and zooming, drawn by Plotly from the same tables."""

from typing import TYPE_CHECKING

import polars as pl

from logitbank.analysis.evaluation_data import Evaluation
from logitbank.analysis.fairness import Fairness
from logitbank.analysis.figure_axes import kind_of
from logitbank.analysis.figure_data import figure_data
from logitbank.analysis.fluctuation import Fluctuation
from logitbank.analysis.interactive_fairness import fairness_sheets
from logitbank.analysis.interactive_parts import Sheet
from logitbank.analysis.stereoset import StereoSet
from logitbank.analysis.unqover import Unqover

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Result = Fairness | Fluctuation | StereoSet | Unqover | Evaluation


def interactive_figures(result: Result) -> "dict[str, Figure]":
    """One figure of each kind, all models and runs in it."""
    return {kind: sheet.figure() for kind, sheet in _sheets(result).items()}


def _sheets(result: Result) -> dict[str, Sheet]:
    tables = tables_by_kind(result)
    if isinstance(result, Fairness):
        return fairness_sheets(result, tables)
    return {}


def tables_by_kind(result: Result) -> dict[str, pl.DataFrame]:
    """The tables of `figure_data`, those of one kind put together."""
    found: dict[str, list[pl.DataFrame]] = {}
    for name, table in figure_data(result).items():
        found.setdefault(kind_of(name), []).append(table)
    return {kind: pl.concat(tables, how="vertical_relaxed") for kind, tables in found.items()}
