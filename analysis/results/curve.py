"""The change points of several quantities over training."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.stats.change_points import CHANGE_COLUMNS, change_rows
from logitbank.analysis.stats.significance import holm


class Course(NamedTuple):
    """The course of one quantity of one model and run over its training steps."""

    keys: Mapping[str, str]
    """Values of the columns that name it: model, run, and what distinguishes its quantity."""
    steps: Sequence[int]
    values: Floats
    draws: Floats
    """(b, c) resampled values; no rows without resamples."""


def courses_of(table: pl.DataFrame, keys: Sequence[str]) -> Iterator[Course]:
    """The courses of `value` over training steps, without draws; each has these keys."""
    steps = table.drop_nulls(["step", "value"])
    for key, rows in steps.group_by(keys, maintain_order=True):
        names = dict(zip(keys, map(str, key), strict=True))
        draws = np.empty((0, len(rows)))
        yield Course(names, rows["step"].to_list(), rows["value"].to_numpy(), draws)


def change_table(courses: Iterable[Course], keys: Sequence[str]) -> pl.DataFrame:
    """The change points of courses: their keys, `CHANGE_COLUMNS`, and `p_holm`.

    `p_holm` is `p_random_walk` adjusted for the models and runs in which the same quantity was
    tested.
    """
    rows = [
        {**course.keys, **row}
        for course in courses
        for row in change_rows(course.steps, course.values, course.draws)
    ]
    table = pl.DataFrame(rows, schema={**dict.fromkeys(keys, pl.String), **CHANGE_COLUMNS})
    tested = table.drop_nulls("p_random_walk").unique(list(keys), keep="first", maintain_order=True)
    quantity = [key for key in keys if key not in CHECKPOINT]
    groups = tested.partition_by(quantity, maintain_order=True) if quantity else [tested]
    adjusted = pl.concat(
        part.select(*keys, p_holm=pl.Series(holm(part["p_random_walk"]), dtype=pl.Float64))
        for part in groups or [tested]
    )
    return table.join(adjusted, on=list(keys), how="left", maintain_order="left")
