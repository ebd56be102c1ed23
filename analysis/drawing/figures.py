"""Figures of every kind of result: its tables, and what is drawn of them on paper and on pages.

A figure on paper draws one table, one on a page all tables of a kind; both draw the same sheet.
"""

import io
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from logitbank.analysis.debias.results import DebiasComparison, DebiasSearch
from logitbank.analysis.debias.sheets import (
    comparison_figure_data,
    comparison_sheets,
    search_figure_data,
    search_sheets,
)
from logitbank.analysis.drawing.paper import PAPER, Paper, kind_of
from logitbank.analysis.drawing.sheet import Interactive, Names, Sheet
from logitbank.analysis.family import Drawing, family_of
from logitbank.analysis.results.files import replace_file
from logitbank.analysis.results.study import Study
from logitbank.analysis.results.tables import Result
from logitbank.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tables = dict[str, pl.DataFrame]


_DEBIASING: dict[type, Drawing] = {
    DebiasComparison: Drawing(comparison_figure_data, comparison_sheets),
    DebiasSearch: Drawing(search_figure_data, search_sheets),
}


def _result(of: "Result | Study[Any]") -> Result:
    return of.result if isinstance(of, Study) else of


def _drawing(result: Result) -> Drawing:
    family = family_of(result)
    return _DEBIASING[type(result)] if family is None else family.drawing


def figure_data(result: "Result | Study[Any]") -> Tables:
    """The table behind each figure of a result or a study, by the figure's name.

    A name is the kind of the figure and, where there are several models, runs, tasks and so on,
    what tells one from another: `gap`, or `gap-<model>-<run>`. A table has one row per point, bar
    or cell that is drawn; `low` and `high`, of deviations `minus_sd` and `plus_sd`, are the ends of
    a band or of a thin line. The page on metrics names those of each family; any prompts that no
    family knows have `shares` and `accuracy` of their options.
    """
    result = _result(result)
    return _drawing(result).tables(result)


def figures(result: "Result | Study[Any]", paper: Paper = PAPER) -> "dict[str, Figure]":
    """Every figure of a result or a study for paper, under the names of `figure_data`.

    Drawn by Matplotlib, each from its table. A figure's label (`get_label()`) is its caption; the
    figure itself has no title. `save_figures` writes them as files.
    """
    from logitbank.analysis.drawing.matplotlib import drawn

    return {name: drawn(sheet, paper) for name, sheet in sheets_of(_result(result)).items()}


def save_figures(
    result: "Result | Study[Any]",
    folder: Path | str,
    paper: Paper = PAPER,
    *,
    only: Collection[str] | None = None,
) -> list[Path]:
    """Write figures as SVG, PDF and PNG, and their captions as text, and return the paths.

    All of them, or those that `only` names as `figure_data` does. Text is text in SVG and PDF,
    whose fonts are TrueType. The same result gives the same bytes with the same version of
    Matplotlib: files have no date in them.

    Raises
    ------
    UsageError
        `only` names what is no figure of the result.
    """
    from matplotlib import rc_context

    from logitbank.analysis.drawing.matplotlib import drawn

    sheets = sheets_of(_result(result))
    if unknown := sorted({*(only or ())} - {*sheets}):
        raise UsageError(f"there is no figure {unknown[0]!r}; there are {', '.join(sheets)}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in sheets if only is None else only:
        figure = drawn(sheets[name], paper)
        with rc_context(paper.settings()):  # type: ignore[arg-type]
            for suffix, date in _DATES.items():
                buffer = io.BytesIO()
                figure.savefig(buffer, format=suffix, metadata=dict.fromkeys(date))
                # Laid out once: that takes a third of an SVG's time, and all come out alike.
                figure.set_layout_engine("none")
                paths.append(folder / f"{name}.{suffix}")
                replace_file(paths[-1], buffer.getvalue())
        paths.append(folder / f"{name}.txt")
        replace_file(paths[-1], f"{figure.get_label()}\n".encode())
    return paths


_DATES = {"svg": ["Date"], "pdf": ["CreationDate"], "png": []}
"""Formats of figures, and what Matplotlib calls the date in each."""


def interactive_figures(result: "Result | Study[Any]") -> dict[str, Interactive]:
    """Interactive figures of a result, one of each kind of `figure_data`, with all models and runs.

    What is asked has figures of its own where there are several: a category of UnQover
    (`ranked_subjects-gender`), a task of StereoSet (`domains-intrasentence`).

    Drawn by Bokeh, with ranges, columns and tags that a page can move; `Interactive` tells of
    them. Texts in `meta` and `traces` are as they came; what is drawn takes none for markup.
    """
    from logitbank.analysis.drawing.bokeh import drawn

    result = _result(result)
    tables = tables_by_kind(result)
    sheets = _drawing(result).sheets(result, tables, Names(tables.values()))
    return {kind: drawn(sheet) for kind, sheet in sheets.items()}


def sheets_of(result: Result) -> dict[str, Sheet]:
    """A sheet for every table of `figure_data`, in which series are called as on a page."""
    drawing, tables = _drawing(result), figure_data(result)
    names, sheets = Names(tables.values()), {}
    for name, table in tables.items():
        (sheets[name],) = drawing.sheets(result, {kind_of(name): table}, names).values()
    return sheets


def tables_by_kind(result: Result) -> Tables:
    """The tables of `figure_data`, those of one kind put together."""
    by_kind: dict[str, list[pl.DataFrame]] = {}
    for name, table in figure_data(result).items():
        by_kind.setdefault(kind_of(name), []).append(table)
    return {kind: pl.concat(tables, how="diagonal_relaxed") for kind, tables in by_kind.items()}
