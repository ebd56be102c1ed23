"""The values of CrowS-Pairs that a comparison of two banks sets side by side."""

from collections.abc import Sequence

import polars as pl

from logitbank.analysis.families.crows_pairs.metric import ALL, OWN, crows_pairs_metric
from logitbank.analysis.frames.pieces import CHECKPOINT


def crows_pairs_headline(frames: Sequence[pl.LazyFrame], expected: pl.DataFrame) -> pl.DataFrame:
    """model, run, step, metric, group, value: the score of all bias types, by kind of score."""
    if not set(OWN) <= set(frames[0].collect_schema().names()):
        return pl.DataFrame()
    table = crows_pairs_metric(frames, expected=expected).crows_pairs.filter(
        pl.col("bias_type") == ALL
    )
    return table.select(
        *CHECKPOINT, metric=pl.lit("score"), group=pl.col("score_kind"), value=pl.col("score")
    )
