"""A curve: one number for each checkpoint, with its uncertainty, that a trade-off can take."""

import polars as pl

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.pieces import CHECKPOINT


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
