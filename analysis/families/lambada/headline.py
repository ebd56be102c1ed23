"""The values of LAMBADA that a comparison of two banks sets side by side."""

from collections.abc import Sequence

import polars as pl

from logitbank.analysis.families.lambada.metric import lambada_metric
from logitbank.analysis.frames.pieces import CHECKPOINT


def lambada_headline(frames: Sequence[pl.LazyFrame], expected: pl.DataFrame) -> pl.DataFrame:
    """model, run, step, metric, group, value."""
    table = lambada_metric(frames, expected=expected).lambada
    return pl.concat(
        table.select(*CHECKPOINT, metric=pl.lit(name), group=pl.lit(""), value=pl.col(column))
        for name, column in (("accuracy", "acc"), ("perplexity", "perplexity"))
    )
