"""Scores of rows that a test wrote by hand, as the reader gives those of a bank."""

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import polars as pl

from logitbank.analysis.families import built_in
from logitbank.analysis.frames.dense import Layout, TokenScores, layout_of
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.measured import Measured, measure
from logitbank.store.format.schema import SCORES_SCHEMA
from logitbank.store.steps import in_order

T = TypeVar("T")
Frame = pl.LazyFrame | pl.DataFrame


@dataclass(frozen=True)
class RowScores(Scores):
    parts: Sequence[pl.LazyFrame] = ()
    asked: pl.DataFrame | None = None
    """What each model is expected to have: model, and columns of the prompts."""
    at_once: int = 1000
    """Checkpoints of one part of dense scores."""

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(name for part in self.parts for name in part.collect_schema().names())

    def frames(self, *, rows: int = 0, coded: Collection[str] = ()) -> Sequence[pl.LazyFrame]:
        names = [name for name in coded if name in self.columns]
        return [part.with_columns(pl.col(names).cast(pl.Categorical)) for part in self.parts]

    def expected_rows(self, columns: Sequence[str]) -> pl.DataFrame:
        asked = pl.concat(self.parts, how="diagonal_relaxed") if self.asked is None else self.asked
        return asked.lazy().select("model", *columns).unique().collect()

    def dense(  # type: ignore[override]
        self, columns: Sequence[str], *, of_prompts: Sequence[str] = (), rows: int = 0
    ) -> "RowTokens":
        found = pl.concat(self.parts, how="diagonal_relaxed").collect()
        return RowTokens(found, found if self.asked is None else self.asked, columns, self.at_once)


class RowTokens:
    """The rows of a frame as `Dense` has the scores of a bank."""

    def __init__(
        self, rows: pl.DataFrame, asked: pl.DataFrame, columns: Sequence[str], at_once: int
    ) -> None:
        self._rows, self._columns, self._at_once = rows, columns, at_once
        self._tokens = {
            str(model): as_prompts(table)
            for (model,), table in pl.concat([asked, rows], how="diagonal_relaxed")
            .partition_by("model", as_dict=True, maintain_order=True)
            .items()
        }
        self.layouts: dict[str, Layout] = {
            model: layout_of([table]) for model, table in self._tokens.items()
        }
        runs = rows.select("model", "run").unique().sort("model", "run").rows()
        self.checkpoints = [
            (model, run, step)
            for model, run in runs
            for step in in_order({*rows.filter(model=model, run=run)["step"]})
        ]

    def divided(self, most: int) -> "Iterator[RowTokens]":
        most = max(1, most)  # a checkpoint is read whole
        for start in range(0, len(self.checkpoints), most):
            part = copy(self)
            part.checkpoints = self.checkpoints[start : start + most]
            yield part

    def __iter__(self) -> Iterator[TokenScores]:
        logprob = pl.col("logprob") if "logprob" in self._rows.columns else pl.col("logit") - 50.0
        rows = self._rows.with_columns(logsumexp=pl.col("logit").cast(pl.Float64) - logprob)
        runs: dict[tuple[str, str], list[int | None]] = {}
        for model, run, step in self.checkpoints:
            runs.setdefault((model, run), []).append(step)
        for (model, run), steps in runs.items():
            own = rows.filter(model=model, run=run)
            for start in range(0, len(steps), self._at_once):
                yield self._read(own, model, run, steps[start : start + self._at_once])

    def _read(
        self, rows: pl.DataFrame, model: str, run: str, steps: Sequence[int | None]
    ) -> TokenScores:
        (places,) = (place["q"] for place in self.layouts[model].places)
        tokens = self._tokens[model].with_columns(at=pl.Series(places))
        shape = len(steps), self.layouts[model].tokens
        scored = np.zeros(shape, bool)
        values = {name: np.zeros(shape, rows[name].to_numpy().dtype) for name in self._columns}
        for c, step in enumerate(steps):
            own = rows.filter(pl.col("step").eq_missing(pl.lit(step))).join(
                tokens.select(*KEY, "at"), on=KEY, nulls_equal=True, maintain_order="left"
            )
            scored[c, own["at"]] = True
            for name, each in values.items():
                each[c, own["at"]] = own[name].to_numpy()
        return TokenScores(model, run, tuple(steps), values, scored)


KEY = ["prompt_id", "order_seed", "option"]


def as_prompts(rows: pl.DataFrame) -> pl.DataFrame:
    """A table of prompts with the options of rows, each a token of its own."""
    own = [name for name in rows.columns if name not in (*CHECKPOINT, *SCORES_SCHEMA, "logprob")]
    key = [*KEY, "piece"] if "piece" in own else KEY
    table = rows.select(own).unique(key, keep="first", maintain_order=True)
    defaults = {
        "piece": pl.lit(0), "text": pl.lit(""), "answer": pl.lit(""), "continuation": "option"
    }  # fmt: skip
    return table.with_columns(
        **{name: each for name, each in defaults.items() if name not in table.columns},
        token=pl.int_range(pl.len()), query_set=pl.lit("q"), row=pl.int_range(pl.len()),
    )  # fmt: skip


def scores_of(*parts: Frame, expected: pl.DataFrame | None = None, at_once: int = 1000) -> Scores:
    """Scores of frames of different checkpoints; by default all of their rows are expected."""
    frames = [part.lazy() for part in parts]
    return RowScores((), ("rows",), parts=frames, asked=expected, at_once=at_once)


def of_rows(metric: Callable[..., T]) -> Callable[..., T]:
    """A metric as a function of the frames of `scores_of`."""

    def measured(*parts: Frame, expected: pl.DataFrame | None = None, **settings: Any) -> T:
        return metric(scores_of(*parts, expected=expected), **settings)

    return measured


def measured(family: str, *parts: Frame, expected: pl.DataFrame | None = None) -> Measured:
    """The measures, views and own tables of a family of logitbank, of frames as `scores_of`."""
    return measure(built_in(family), scores_of(*parts, expected=expected))
