"""Means of a checkpoint's prompts and their intervals, one for each measure of curves."""

from collections.abc import Mapping, Sequence
from typing import Literal

import polars as pl

from logitbank.analysis.frames.pieces import AGAIN
from logitbank.analysis.stats.shares import Z95, if_enough
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
    """One row per measure: value, the deviation of prompts, and how many have a value."""
    found = prompts.select(
        statistic
        for measure in BOUNDS
        # In the order of their size, so that the mean does not depend on that of a group-by.
        for value in (pl.col(measure).cast(pl.Float64).drop_nulls().sort(),)
        for statistic in (
            value.mean().alias(f"{measure} value"),
            value.std().alias(f"{measure} deviation"),
            value.len().alias(f"{measure} prompts"),
        )
    ).row(0, named=True)
    named = ("value", "deviation", "prompts")
    return [
        {**head, "measure": measure, **{name: found[f"{measure} {name}"] for name in named}}
        for measure in BOUNDS
    ]


def with_intervals(rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Rows of `means_of` as `CURVES`: each with its 95 % interval, within its measure's bounds."""
    table = pl.DataFrame(rows, {**CURVES, "deviation": pl.Float64()})
    half = Z95 * pl.col("deviation") / pl.col("prompts").sqrt()
    least, most = (
        pl.col("measure").replace_strict(
            {measure: bounds[side] for measure, bounds in BOUNDS.items()}, return_dtype=pl.Float64
        )
        for side in (0, 1)
    )
    ends = {"low": pl.col("value") - half, "high": pl.col("value") + half}
    return table.with_columns(
        if_enough(end.clip(least, most), pl.col("prompts")).alias(name)
        for name, end in ends.items()
    ).select(CURVES.names())


def refuse_undefined(probability: pl.Series, head: Mapping[str, object]) -> None:
    """Refuse answers whose logits are not finite: no mean of them is a number."""
    invalid = probability.filter(~probability.is_finite())
    if len(invalid):
        raise BankError(
            f"an answer of {head['prompt_set']} has the probability {invalid[0]} at "
            f"{checkpoint_name(head)} ({len(invalid):,} such prompts); {AGAIN}"
        )
