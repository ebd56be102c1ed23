"""Scores of rows that a test wrote by hand, as the reader gives those of a bank."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import polars as pl

from logitbank.analysis.families import built_in
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.measured import Measured, measure

T = TypeVar("T")
Frame = pl.LazyFrame | pl.DataFrame


@dataclass(frozen=True)
class RowScores(Scores):
    parts: Sequence[pl.LazyFrame] = ()
    asked: pl.DataFrame | None = None
    """What each model is expected to have: model, and columns of the prompts."""

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(name for part in self.parts for name in part.collect_schema().names())

    def frames(self, *, rows: int = 0, coded: Collection[str] = ()) -> Sequence[pl.LazyFrame]:
        names = [name for name in coded if name in self.columns]
        return [part.with_columns(pl.col(names).cast(pl.Categorical)) for part in self.parts]

    def expected_rows(self, columns: Sequence[str]) -> pl.DataFrame:
        asked = pl.concat(self.parts, how="diagonal_relaxed") if self.asked is None else self.asked
        return asked.lazy().select("model", *columns).unique().collect()


def scores_of(*parts: Frame, expected: pl.DataFrame | None = None) -> Scores:
    """Scores of frames of different checkpoints; by default all of their rows are expected."""
    return RowScores((), ("rows",), parts=[part.lazy() for part in parts], asked=expected)


def of_rows(metric: Callable[..., T]) -> Callable[..., T]:
    """A metric as a function of the frames of `scores_of`."""

    def measured(*parts: Frame, expected: pl.DataFrame | None = None, **settings: Any) -> T:
        return metric(scores_of(*parts, expected=expected), **settings)

    return measured


def measured(family: str, *parts: Frame, expected: pl.DataFrame | None = None) -> Measured:
    """The measures, views and own tables of a family of logitbank, of frames as `scores_of`."""
    return measure(built_in(family), scores_of(*parts, expected=expected))
