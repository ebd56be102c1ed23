"""The tables behind the figures of stereotype accuracy, one row per point drawn.

`low` and `high` are as in the result's tables, for JSD-P ± one deviation between option orders.
"""

import polars as pl

from logitbank.analysis.drawing.names import per_run
from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy
from logitbank.analysis.frames.pieces import CHECKPOINT

POINT = (*CHECKPOINT, "panel", "series", "value", "low", "high")


def stereotype_figure_data(result: StereotypeAccuracy) -> dict[str, pl.DataFrame]:
    """`stereotype_accuracy`, of every model and run."""
    return per_run("stereotype_accuracy", _stereotype(result))


def _stereotype(result: StereotypeAccuracy) -> pl.DataFrame:
    names = {"sa": "SA", "sa_gender": "sa_gender"}
    both = result.stereotype_accuracy.with_columns(
        panel=pl.lit("accuracy"),
        series=pl.col("measure").replace(names)
        + pl.when(pl.col("type") == 1).then(pl.lit(", Type 1")).otherwise(pl.lit("")),
        value="accuracy",
    )
    jsd = result.jsd_p.with_columns(
        panel=pl.lit("jsd_p"),
        series=pl.col("gold"),
        value="jsd_p",
        low=pl.col("jsd_p") - pl.col("sd"),
        high=pl.col("jsd_p") + pl.col("sd"),
    )
    return pl.concat([both.select(POINT), jsd.select(POINT)])
