"""The values of fairness that a comparison of two banks sets side by side."""

from collections.abc import Sequence

import polars as pl

from logitbank.analysis.families.fairness.axes import CHECKPOINT
from logitbank.analysis.families.fairness.metric import LABELS, fairness_metric


def fairness_headline(frames: Sequence[pl.LazyFrame], expected: pl.DataFrame) -> pl.DataFrame:
    """model, run, step, metric, group, value; no rows where the options are not fairness's."""
    options = pl.concat(frames).select(pl.col("option").unique()).collect()["option"]
    if set(options) != set(LABELS):
        return pl.DataFrame()
    result = fairness_metric(frames, bootstrap=0)
    columns = (
        (result.gap, "gap", pl.lit(""), "delta_scaled"),
        (result.average_rank, "average_rank", pl.col("gold"), "average_rank"),
        (result.accuracy, "accuracy", pl.col("gold"), "accuracy"),
        (result.accuracy, "three_way_accuracy", pl.col("gold"), "three_way_accuracy"),
    )
    return pl.concat(
        table.select(*CHECKPOINT, metric=pl.lit(name), group=group, value=pl.col(value))
        for table, name, group, value in columns
    )
