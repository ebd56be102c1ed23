"""Curves: one number for each checkpoint, with its uncertainty, and the change points of several.

A family's gap is a `curve` when a trade-off sets it against performance.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.input_files import parse_integers, parse_numbers, read_table
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.harness import NEW_NAMES
from logitbank.analysis.stats.change_points import CHANGE_COLUMNS, ChangeSearch
from logitbank.analysis.stats.shares import Z95
from logitbank.analysis.stats.significance import holm
from logitbank.errors import UsageError


def curve(
    checkpoints: pl.DataFrame,
    values: Floats | pl.Series,
    *,
    stderr: Floats | pl.Series | None = None,
    draws: Floats | None = None,
) -> pl.DataFrame:
    """A table with the columns model, run, step, value, stderr and draws.

    `checkpoints` has model, run and step. `draws` (b, c) are resampled values, one resample in each
    row. Without draws and standard errors, the curve has no uncertainty.
    """
    by_checkpoint: list[list[float] | None] = [None] * len(checkpoints)
    if draws is not None and len(draws):
        by_checkpoint = draws.T.tolist()
    return checkpoints.select(CHECKPOINT).with_columns(
        value=pl.Series(values, dtype=pl.Float64, strict=False),
        stderr=pl.lit(float("nan")) if stderr is None else pl.Series(stderr, dtype=pl.Float64),
        draws=pl.Series(by_checkpoint, dtype=pl.List(pl.Float64)),
    )


class Course(NamedTuple):
    """The course of one quantity of one model and run over its training steps."""

    keys: Mapping[str, str]
    """Values of the columns that name it: model, run, and what distinguishes its quantity."""
    steps: Sequence[int]
    values: Floats
    draws: Floats
    """(b, c) resampled values; no rows without resamples."""


def change_table(courses: Iterable[Course], keys: Sequence[str], *, seed: int = 0) -> pl.DataFrame:
    """The change points of courses: their keys, `CHANGE_COLUMNS`, and `p_holm`.

    `p_holm` is `p_random_walk` adjusted for the models and runs in which the same quantity was
    tested.
    """
    search = ChangeSearch(seed=seed)
    rows = [
        {**course.keys, **row}
        for course in courses
        for row in search.rows(course.steps, course.values, course.draws)
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


def read_curve(path: Path, column: str, *, otherwise: str = "") -> pl.DataFrame:
    """One curve of a CSV or Parquet table.

    The table has model and step, and either a column of that name, or the columns metric and value.
    A standard error is in `stderr` or `<column>_stderr`, or follows from a 95 % interval, `low` and
    `high`; for `delta_scaled` also `low_scaled` and `high_scaled`. A column run is optional.
    `otherwise` is a column to read if there is none of that name.

    Raises
    ------
    UsageError
        No such table or column, or an invalid number.
    """
    table = read_table(path)
    if missing := [key for key in ("model", "step") if key not in table.columns]:
        raise UsageError(
            f"{path} lacks {', '.join(missing)}; it has {_listed(table.columns)}. A curve needs "
            "model, step and a value."
        )
    value, table = _value_column(table, [column, otherwise], path)
    try:
        values, steps = parse_numbers(table[value]), parse_integers(table["step"])
        errors = _errors(table, value)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    run = table["run"] if "run" in table.columns else pl.Series(["main"] * len(table))
    checkpoints = pl.DataFrame(
        {"model": table["model"].cast(pl.String), "run": run.cast(pl.String), "step": steps}
    )
    return curve(checkpoints, values, stderr=errors)


def _value_column(
    table: pl.DataFrame, columns: Sequence[str], path: Path
) -> tuple[str, pl.DataFrame]:
    """The column with the values, and the rows that have them."""
    old = {new: old for old, new in NEW_NAMES.items()}
    column = columns[0]
    names = [name for name in (column, NEW_NAMES.get(column), old.get(column)) if name]
    if {"metric", "value"} <= {*table.columns}:
        rows = table.filter(pl.col("metric").cast(pl.String).is_in(names))
        if len(rows):
            return "value", rows
        available = table["metric"].cast(pl.String).drop_nulls().unique().sort().to_list()
    else:
        available = [name for name in table.columns if name not in CHECKPOINT]
        for name in (*names, *columns[1:]):
            if name in available:
                return name, table
    raise UsageError(
        f"Unknown metric or gap {column!r}: {path} has {_listed(available)}. Choose one with "
        "--metric or --gap."
    )


def _errors(table: pl.DataFrame, column: str) -> pl.Series | None:
    for name in (f"{column}_stderr", "stderr"):
        if name in table.columns:
            return parse_numbers(table[name]).fill_null(float("nan"))
    stem, _, unit = column.rpartition("_")
    for low, high in ((f"low_{unit}", f"high_{unit}"), ("low", "high")):
        if {low, high} <= {*table.columns} and (low != "low" or column == "value" or not stem):
            width = (parse_numbers(table[high]) - parse_numbers(table[low])) / (2 * Z95)
            return width.fill_null(float("nan"))
    return None


def _listed(names: Sequence[str], most: int = 12) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
