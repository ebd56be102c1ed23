"""A part of a page: what an analysis found, what it draws, and its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from logitbank.analysis.drawing.figures import interactive_figures, tables_by_kind
from logitbank.analysis.drawing.paper import kind_of
from logitbank.analysis.families.options.metric import OptionScores
from logitbank.analysis.family import family_of
from logitbank.analysis.results.message import Message
from logitbank.analysis.results.study import Study
from logitbank.analysis.results.words import Summary

if TYPE_CHECKING:
    from logitbank.analysis.drawing.sheet import Interactive

_UNSAID = Summary(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A section of a page: an analysis."""

    id: str
    title: str
    prompts: Sequence[str] = ()
    about: str = ""
    """What it asks, in plain words."""
    summary: Summary = _UNSAID
    problem: str = ""
    figures: "Mapping[str, Interactive]" = field(default_factory=dict)
    figure_tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """What each figure draws."""
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    message: Message | None = None
    """What it says first."""
    beside: bool = False
    """Its figures and tables are files in the folders `figures` and `tables` beside the page."""


def part_of(
    study: Study[Any],
    *,
    id: str,
    title: str,
    about: str,
    prompts: Sequence[str] = (),
    beside: bool = False,
) -> Part:
    """The part of a study: every figure of its result, and every table that has rows."""
    result = study.result
    figures = interactive_figures(result)
    family = family_of(result)
    # Figures of any prompts draw the tables below them.
    drawn = {} if isinstance(result, OptionScores) else tables_by_kind(result)
    return Part(
        id=id,
        title=title,
        prompts=prompts,
        about=about,
        summary=study.summary,
        figures=figures,
        figure_tables={name: drawn[kind_of(name)] for name in figures if kind_of(name) in drawn},
        tables={name: table for name, table in result.tables().items() if len(table)},
        message=family.message(result) if family and family.message else None,
        beside=beside,
    )
