"""Means of a checkpoint's prompts and their intervals, one for each measure of curves."""

from collections.abc import Mapping, Sequence
from typing import Literal

import polars as pl

from logitbank.analysis.frames.pieces import AGAIN
from logitbank.analysis.stats.shares import clustered_error, with_t_interval
from logitbank.errors import BankError
from logitbank.wording import checkpoint_name

Measure = Literal["entropy", "probability", "rank", "agreement"]
BOUNDS: dict[Measure, tuple[float, float | None]] = {
    "entropy": (0, None),
    "probability": (0, 1),
    "rank": (1, None),
    "agreement": (0, 1),
}
"""The measures, and between which values each lies."""
CURVES = pl.Schema(
    {
        "model": pl.String(), "run": pl.String(), "step": pl.Int64(), "prompt_set": pl.String(),
        "measure": pl.String(), "value": pl.Float64(), "low": pl.Float64(), "high": pl.Float64(),
        "prompts": pl.Int64(),
    }
)  # fmt: skip


def means_of(prompts: pl.DataFrame, head: Mapping[str, object]) -> list[dict[str, object]]:
    """One row per measure: value, how many prompts have one, and its error between sentences."""
    rows = []
    for measure in BOUNDS:
        values = prompts.select(
            pl.lit(measure).alias("measure"), "sentence", value=pl.col(measure).cast(pl.Float64)
        ).drop_nulls("value")
        # In the order of their size, so that sums do not depend on that of a group-by.
        values = values.sort("value", "sentence")
        errors = clustered_error(values, ["measure"], "value", cluster="sentence")
        error = errors.row(0, named=True) if len(errors) else {}
        mean = values["value"].mean()
        rows.append({**head, "measure": measure, **error, "value": mean, "prompts": len(values)})
    return rows


def with_intervals(rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Rows of `means_of` as `CURVES`: each with its 95 % interval, within its measure's bounds.

    Ranks have none: that of a mean of such skewed numbers is too short.
    """
    table = pl.DataFrame(rows, {**CURVES, "clusters": pl.Int64(), "stderr": pl.Float64()})
    least, most = (
        pl.col("measure").replace_strict(
            {measure: bounds[side] for measure, bounds in BOUNDS.items()}, return_dtype=pl.Float64
        )
        for side in (0, 1)
    )
    known = with_t_interval(table, "value", bounds=(None, None))
    end = pl.col("low", "high").clip(least, most).fill_null(float("nan"))
    return known.with_columns(
        pl.when(pl.col("measure") == "rank").then(float("nan")).otherwise(end).name.keep()
    ).select(CURVES.names())


def refuse_undefined(probability: pl.Series, head: Mapping[str, object]) -> None:
    """Refuse answers whose logits are not finite: no mean of them is a number."""
    invalid = probability.filter(~probability.is_finite())
    if len(invalid):
        raise BankError(
            f"an answer of {head['prompt_set']} has the probability {invalid[0]} at "
            f"{checkpoint_name(head)} ({len(invalid):,} such prompts); {AGAIN}"
        )
