"""The message of a measure that has a level of no preference: which model is farthest from it."""

from collections.abc import Callable
from typing import Any

import polars as pl

from logitbank.analysis.results.message import (
    SERIES,
    KeyNumber,
    Message,
    checkpoint_number,
    interval_text,
    on_one_side,
    subject_of,
)
from logitbank.analysis.results.words import UNTRAINED, Row
from logitbank.wording import step_name


def level_message(
    table: pl.DataFrame,
    *,
    value: str,
    middle: float,
    figure: str,
    what: str,
    form: Callable[[float], str],
    over: Callable[[Row], str],
    sentence: Callable[[str, Row], str],
) -> Message | None:
    """Of the last checkpoints of all models and runs, the one that is farthest with an interval
    beside `middle`, or else farthest.

    It is the largest of as many, and says so. It is never certain: of values that only fluctuate
    around the middle, most have an interval on one side of it at some checkpoint.

    Parameters
    ----------
    table
        One row per checkpoint, in order, with the interval of `value` as low and high.
    middle
        The level of no preference.
    form
        How the value is written.
    over
        Of a row, what its value is over and what is missing.
    sentence
        Of a subject (`the model`, or a model by its name) and a row.
    """
    known = table.filter(pl.col(value).cast(pl.Float64).is_not_nan())
    if known.is_empty():
        return None
    last = known.group_by(SERIES, maintain_order=True).last()
    clear = on_one_side("low", "high", middle)
    row = last.sort(clear, (pl.col(value) - middle).abs(), descending=True).row(0, named=True)
    rows = known.filter(model=row["model"], run=row["run"])
    said = sentence(subject_of(row, table), row)
    if len(last) > 1:
        said = f"{said.removesuffix('.')} (largest of {len(last):,} runs)."
    return Message(
        sentence=said,
        figure=figure,
        numbers=[
            KeyNumber(form(row[value]), f"{what} at {step_name(row['step'])}",
                      interval_text(row, form) + over(row)),
            *_first(rows, value, what, form),
            *_last_ten(rows, value, what, form),
            checkpoint_number(table),
        ],
        series=(row["model"], row["run"]),
    )  # fmt: skip


def with_missing(table: pl.DataFrame, checkpoints: pl.DataFrame) -> pl.DataFrame:
    """A table with how many scores each checkpoint lacks, in the column `missing`."""
    keys = [*SERIES, "step"]
    missing = checkpoints.select(*keys, "missing")
    return table.join(missing, on=keys, how="left", nulls_equal=True, maintain_order="left")


def _first(
    rows: pl.DataFrame, value: str, what: str, form: Callable[[float], str]
) -> list[KeyNumber]:
    """The first checkpoint of the run, where that is another one."""
    if len(rows) < 2:
        return []
    row: Any = rows.row(0, named=True)
    untrained = "the untrained model" if row["step"] == UNTRAINED else "the first checkpoint"
    return [KeyNumber(form(row[value]), f"{what} at {step_name(row['step'])}", untrained)]


def _last_ten(
    rows: pl.DataFrame, value: str, what: str, form: Callable[[float], str]
) -> list[KeyNumber]:
    """Between which values the last checkpoints of the run are, where there are more than two."""
    values = rows[value].tail(10).sort()
    if len(values) < 3:
        return []
    ends = f"{form(values[0])} to {form(values[-1])}"
    return [KeyNumber(ends, f"{what} over the last {len(values)} checkpoints")]
