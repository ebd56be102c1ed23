"""Figures to look into: with hovering and zooming, drawn by Plotly from the same tables."""

from typing import TYPE_CHECKING

import polars as pl

from logitbank.analysis.evaluation_data import Evaluation
from logitbank.analysis.fairness import Fairness
from logitbank.analysis.figure_axes import kind_of
from logitbank.analysis.figure_data import figure_data
from logitbank.analysis.fluctuation import Fluctuation
from logitbank.analysis.interactive_evaluation import evaluation_sheets
from logitbank.analysis.interactive_fairness import fairness_sheets
from logitbank.analysis.interactive_fluctuation import fluctuation_sheets
from logitbank.analysis.interactive_parts import Sheet
from logitbank.analysis.interactive_stereoset import stereoset_sheets
from logitbank.analysis.interactive_tradeoff import tradeoff_sheets
from logitbank.analysis.interactive_unqover import unqover_sheets
from logitbank.analysis.stereoset import StereoSet
from logitbank.analysis.tradeoff import TradeOff
from logitbank.analysis.unqover import Unqover

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Result = Fairness | Fluctuation | StereoSet | Unqover | Evaluation


def interactive_figures(result: Result) -> "dict[str, Figure]":
    """Interactive figures of a result, one of each kind of `figure_data`, with all models and runs.

    What is asked has figures of its own where there are several: a category of UnQover
    (`ranked_subjects-gender`), a task of StereoSet (`domains-intrasentence`). Beside the kinds of
    `figure_data` there are `accuracy` (of fairness, over training) and `crows_pairs_types`.

    `layout.meta` has title, caption, `kind` (`training`, `checkpoint` or `fixed`), `one_series`
    (of several models, one at a time) and `steps`, the release as None; of kind `training` also
    `axis`, places and texts of ticks. Every trace's `meta` has `series` (the model, and run or verb
    and so on where they differ), `group` (what its colour stands for) and `role`; of kind
    `checkpoint` also `step`, and a trace without one belongs to all. These texts are as they came;
    all others are escaped, as Plotly would read them as markup. Of kind `training` the first of
    every point's `customdata` is the real step.
    """
    return {kind: sheet.figure() for kind, sheet in _sheets(result).items()}


def _sheets(result: Result) -> dict[str, Sheet]:
    tables = tables_by_kind(result)
    if isinstance(result, Fairness):
        return fairness_sheets(result, tables)
    if isinstance(result, Fluctuation):
        return fluctuation_sheets(tables)
    if isinstance(result, StereoSet):
        return stereoset_sheets(result, tables)
    if isinstance(result, Unqover):
        return unqover_sheets(result, tables)
    if isinstance(result, TradeOff):
        return tradeoff_sheets(result, tables)
    return evaluation_sheets(result, tables)


def tables_by_kind(result: Result) -> dict[str, pl.DataFrame]:
    """The tables of `figure_data`, those of one kind put together."""
    found: dict[str, list[pl.DataFrame]] = {}
    for name, table in figure_data(result).items():
        found.setdefault(kind_of(name), []).append(table)
    return {kind: pl.concat(tables, how="vertical_relaxed") for kind, tables in found.items()}
