"""Figures to look into: with hovering and zooming, drawn from the same tables."""

import polars as pl

from logitbank.analysis.drawing.paper import kind_of
from logitbank.analysis.drawing.sheet import Interactive, Sheet
from logitbank.analysis.drawing.static_data import figure_data
from logitbank.analysis.families.evaluation.figure_data import Evaluation
from logitbank.analysis.families.evaluation.sheets import evaluation_sheets
from logitbank.analysis.families.fairness.metric import Fairness
from logitbank.analysis.families.fairness.sheets import fairness_sheets
from logitbank.analysis.families.fluctuation.metric import Fluctuation
from logitbank.analysis.families.fluctuation.sheets import fluctuation_sheets
from logitbank.analysis.families.options.metric import OptionScores
from logitbank.analysis.families.options.sheets import option_sheets
from logitbank.analysis.families.stereoset.metric import StereoSet
from logitbank.analysis.families.stereoset.sheets import stereoset_sheets
from logitbank.analysis.families.tradeoff.metric import TradeOff
from logitbank.analysis.families.tradeoff.sheets import tradeoff_sheets
from logitbank.analysis.families.unqover.metric import Unqover
from logitbank.analysis.families.unqover.sheets import unqover_sheets

__all__ = ["Interactive", "Result", "interactive_figures", "tables_by_kind"]

Drawn = Fairness | Fluctuation | StereoSet | Unqover | Evaluation
Result = Drawn | OptionScores


def interactive_figures(result: Result) -> dict[str, Interactive]:
    """Interactive figures of a result, one of each kind of `figure_data`, with all models and runs.

    What is asked has figures of its own where there are several: a category of UnQover
    (`ranked_subjects-gender`), a task of StereoSet (`domains-intrasentence`). Beside the kinds of
    `figure_data` there are `accuracy` (of fairness, over training) and `crows_pairs_types`; those
    of `OptionScores` are `shares` and `accuracy`.

    Drawn by Bokeh, with ranges, columns and tags that a page can move; `Interactive` tells of
    them. Texts in `meta` and `traces` are as they came; what is drawn takes none for markup.
    """
    from logitbank.analysis.drawing.bokeh import drawn

    return {kind: drawn(sheet) for kind, sheet in _sheets(result).items()}


def _sheets(result: Result) -> dict[str, Sheet]:
    if isinstance(result, OptionScores):
        return option_sheets(result)
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


def tables_by_kind(result: Drawn) -> dict[str, pl.DataFrame]:
    """The tables of `figure_data`, those of one kind put together."""
    found: dict[str, list[pl.DataFrame]] = {}
    for name, table in figure_data(result).items():
        found.setdefault(kind_of(name), []).append(table)
    return {kind: pl.concat(tables, how="diagonal_relaxed") for kind, tables in found.items()}
